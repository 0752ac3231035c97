package child

import "os/exec"

// Windows has no SIGTERM for a child without a console, so Terminate kills the child.

// Start starts the child.
func Start(cmd *exec.Cmd) error { return cmd.Start() }

// Terminate kills the child.
func Terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// Kill kills the child.
func Kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
