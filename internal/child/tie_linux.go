package child

import (
	"os/exec"
	"syscall"
)

// Tie gives the child a process group of its own, so that a Ctrl-C meant for
// windtunnel does not end the child under requests in flight, and lets the kernel
// kill it when windtunnel dies without a chance to.
func Tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
