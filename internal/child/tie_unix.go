//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// Tie gives the child a process group of its own, so that a Ctrl-C meant for
// windtunnel does not end the child under requests in flight. Only Linux also
// kills it when windtunnel is killed.
func Tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
