//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// Start starts the child in a process group of its own, so that a Ctrl-C for windtunnel does not end the child while
// requests are in flight. Only on Linux does the child end when windtunnel is killed.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}
