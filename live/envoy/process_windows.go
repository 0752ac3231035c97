package envoy

import (
	"math"
	"os/exec"
)

// Windows has no SIGTERM for a console-less child; Envoy is simply ended.
func tie(*exec.Cmd)           {}
func terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
func raiseDescriptorLimit()   {}

// DescriptorLimit is how many files one process may have open: sockets are
// not limited so here.
func DescriptorLimit() uint64 { return math.MaxUint64 }
