package flowcontrol

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// The fairness policies, by their plug-in types.
const (
	// GlobalStrict has no fairness: the first request of all flows by the ordering policy leaves.
	GlobalStrict = "global-strict-fairness-policy"
	RoundRobin   = "round-robin-fairness-policy" // one request of each flow in turn, in the order of the flows' ids
	ProgramAware = "program-aware-fairness"      // the flow with the least service (see Program)
)

// Fairness chooses and configures the fairness policy of a band. Bands that name the same plug-in instance share the
// service that program-aware-fairness counts.
type Fairness struct {
	Kind     string // "" is GlobalStrict
	Instance string // the plug-in's name; "" is Kind
	Program  Program
}

func (f Fairness) withDefaults() Fairness {
	f.Kind = cmp.Or(f.Kind, GlobalStrict)
	f.Instance = cmp.Or(f.Instance, f.Kind)
	if f.Kind == ProgramAware && f.Program == (Program{}) {
		f.Program = DefaultProgram()
	}
	return f
}

// Validate returns an error for an unknown policy or parameters out of range.
func (f Fairness) Validate() error {
	switch f.Kind {
	case "", GlobalStrict, RoundRobin:
		return nil
	case ProgramAware:
		return f.withDefaults().Program.Validate()
	}
	return fmt.Errorf("unknown fairness policy %q: use %s, %s or %s", f.Kind, GlobalStrict, RoundRobin, ProgramAware)
}

// fairness chooses among the flows of one band in which requests wait.
type fairness interface {
	admit(*flow)                    // a new flow exists
	join(*flow)                     // its first request waits
	leave(*flow)                    // no request waits any longer
	headChanged(*flow)              // another request is its first
	pick(now machine.Time) *flow    // the flow whose first request leaves next
	picked(*item, machine.Time)     // a request has left
	idle(now machine.Time, n int64) // n dispatch cycles found the band empty, the last at now
	forget(*flow)                   // the flow was removed
}

func (c *Controller) newFairness(f Fairness) fairness {
	switch f.Kind {
	case RoundRobin:
		return &roundRobin{}
	case ProgramAware:
		p := c.programs[f.Instance]
		if p == nil {
			p = newPrograms(f.Program)
			c.programs[f.Instance] = p
		}
		return &programAware{programs: p}
	}
	return &strict{}
}

// strict keeps the flows in a heap by their first requests.
type strict struct{ flows machine.Heap[*flow] }

func (s *strict) admit(*flow)                {}
func (s *strict) join(f *flow)               { s.headChanged(f) }
func (s *strict) leave(f *flow)              { s.flows.Remove(&f.inStrict) }
func (s *strict) headChanged(f *flow)        { s.flows.Put(&f.inStrict, f.head().key(), f) }
func (s *strict) pick(machine.Time) *flow    { _, f := s.flows.Peek(); return *f }
func (s *strict) picked(*item, machine.Time) {}
func (s *strict) idle(machine.Time, int64)   {}
func (s *strict) forget(*flow)               {}

// waiting is the list of a band's flows in which requests wait, ordered by id.
type waiting struct{ flows []*flow }

func (w *waiting) find(id string) (int, bool) {
	return slices.BinarySearchFunc(w.flows, id, func(f *flow, id string) int { return strings.Compare(f.id, id) })
}

func (w *waiting) join(f *flow) {
	i, _ := w.find(f.id)
	w.flows = slices.Insert(w.flows, i, f)
}

func (w *waiting) leave(f *flow) {
	if i, ok := w.find(f.id); ok {
		w.flows = slices.Delete(w.flows, i, i+1)
	}
}

func (w *waiting) headChanged(*flow) {}

// roundRobin serves the flow after the last one served. It restarts at the first flow after a dispatch cycle has found
// the band empty, or when the last flow was removed.
type roundRobin struct {
	waiting
	last *flow
}

func (r *roundRobin) pick(machine.Time) *flow {
	if r.last == nil {
		return r.flows[0]
	}
	i, found := r.find(r.last.id)
	if found {
		i++
	}
	return r.flows[i%len(r.flows)]
}

func (r *roundRobin) admit(*flow)                     {}
func (r *roundRobin) picked(it *item, _ machine.Time) { r.last = it.flow }
func (r *roundRobin) idle(machine.Time, int64)        { r.last = nil }
func (r *roundRobin) forget(f *flow) {
	if r.last == f {
		r.last = nil
	}
}
