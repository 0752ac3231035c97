package child

import "os/exec"

// Windows has no SIGTERM for a child without a console: it is simply ended.

// Start starts the child.
func Start(cmd *exec.Cmd) error { return cmd.Start() }

// Terminate ends the child.
func Terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// Kill ends the child.
func Kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
