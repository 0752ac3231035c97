package latency

import (
	"iter"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
)

// StepBreakdown divides the time of one step of a tensor-parallel group into parts. With every timer, the sum of the
// parts is exactly the time of the step.
type StepBreakdown struct {
	Total machine.Time
	// Broadcast is the leader's message to its ranks at the step's beginning.
	Broadcast machine.Time
	// AllReduce is the time of each of AllReduces equal collectives, two per layer.
	AllReduce  machine.Time
	AllReduces int
	// Gather is the time to collect the logits on the leader, at the end.
	Gather machine.Time
	// Compute is the rest: the time in which every rank works on its slice.
	Compute machine.Time
}

// Phase is the activity of a group at one time of a step.
type Phase uint8

// The phases of a step, in order; compute and all-reduce alternate.
const (
	PhaseBroadcast Phase = iota
	PhaseCompute
	PhaseAllReduce
	PhaseGather
)

// String returns the name used in flow events.
func (p Phase) String() string {
	return [...]string{"broadcast", "compute", "all-reduce", "gather"}[p]
}

// SubEvent is one phase of a step: its beginning, counted from the step's beginning, and its duration. Layer counts
// from 0; it is -1 before the first layer and after the last.
type SubEvent struct {
	Phase    Phase
	Layer    int
	Start    machine.Time
	Duration machine.Time
}

// Split divides a step that took total, which is longer than the timer's figure if the step loaded an adapter or
// blocks. The ring formulas give the communication over the group's wires. A measured step that is too short for that
// keeps at least a tenth of its time for computing.
func (t *Timer) Split(s *engine.Step, total machine.Time) StepBreakdown {
	b := StepBreakdown{Total: total}
	if h := t.hardware; h != nil && h.Group.TP > 1 {
		tokens, sampled := s.PrefillTokens+int64(s.DecodeSeqs), int64(s.PrefillFinished+s.DecodeSeqs)
		left := b.Total - b.Total/10
		take := func(ns int64) machine.Time {
			part := min(machine.Time(ns), left)
			left -= part
			return part
		}
		b.Broadcast = take(h.Group.Broadcast(broadcastBytes(tokens, int64(s.PrefillSeqs+s.DecodeSeqs))))
		b.Gather = take(h.Group.AllGather(2 * sampled * int64(h.Model.Vocab)))
		b.AllReduces = 2 * h.Model.Layers
		each := h.Group.AllReduce(2 * tokens * int64(h.Model.Hidden))
		b.AllReduce = take(each*int64(b.AllReduces)) / machine.Time(b.AllReduces)
	}
	b.Compute = b.Total - b.Broadcast - b.Gather - b.AllReduce*machine.Time(b.AllReduces)
	return b
}

// Events iterates over the phases in the order of time. A group of one has a single compute phase.
func (b StepBreakdown) Events() iter.Seq[SubEvent] {
	return func(yield func(SubEvent) bool) {
		var at machine.Time
		emit := func(p Phase, layer int, d machine.Time) bool {
			ok := yield(SubEvent{p, layer, at, d})
			at += d
			return ok
		}
		if b.AllReduces == 0 {
			emit(PhaseCompute, -1, b.Compute)
			return
		}
		if !emit(PhaseBroadcast, -1, b.Broadcast) {
			return
		}
		var computed machine.Time
		for i := range b.AllReduces {
			// Shares differ by at most 1 ns, so that the sum is exact.
			next := b.Compute * machine.Time(i+1) / machine.Time(b.AllReduces+1)
			if !emit(PhaseCompute, i/2, next-computed) || !emit(PhaseAllReduce, i/2, b.AllReduce) {
				return
			}
			computed = next
		}
		_ = emit(PhaseCompute, -1, b.Compute-computed) && emit(PhaseGather, -1, b.Gather)
	}
}
