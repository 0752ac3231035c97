package plugins

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

// roundRobin is round-robin-picker, which the real EPP does not have: the
// candidates in turn, whatever the scores. It is what a pool without a picker
// configuration uses, and the yardstick for those with one.
type roundRobin struct {
	named
	turn int
}

func newRoundRobin(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	return &roundRobin{named: base("round-robin-picker", name)}, p.Decode(&struct{}{})
}

// PickEndpoints takes the next one.
func (s *roundRobin) PickEndpoints(_ *picker.Cycle, in []int32, _ []float64, picked []int32) []int32 {
	return append(picked, in[s.turn%len(in)])
}

// Commit goes on to the next one.
func (s *roundRobin) Commit(machine.Time, *picker.Decision) { s.turn++ }
