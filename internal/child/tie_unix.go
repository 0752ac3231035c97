//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// Start starts the child in a process group of its own, so that a Ctrl-C meant for
// windtunnel does not end the child under requests in flight. Only Linux also kills
// it when windtunnel is killed.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}
