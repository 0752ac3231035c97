package envoy

import (
	"os/exec"
	"syscall"
)

// tie gives the child a process group of its own, so that a Ctrl-C meant for
// windtunnel does not end Envoy under requests in flight, and lets the kernel
// kill it when windtunnel dies without a chance to.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
