//go:build unix

package child

import (
	"os/exec"
	"syscall"
)

// Terminate asks the child's group to end, Kill ends it. The group also holds
// what a script may have started.
func Terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// Kill ends the child and its group.
func Kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
