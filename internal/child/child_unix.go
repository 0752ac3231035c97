//go:build unix

package child

import (
	"os/exec"
	"syscall"
)

// Terminate sends SIGTERM to the child's process group, which includes the programs that the child started.
func Terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// Kill sends SIGKILL to the child's process group.
func Kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
