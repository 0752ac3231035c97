package child

import "os/exec"

// Windows has no SIGTERM for a child without a console: it is simply ended.

// Tie does nothing here.
func Tie(*exec.Cmd) {}

// Terminate ends the child.
func Terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// Kill ends the child.
func Kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
