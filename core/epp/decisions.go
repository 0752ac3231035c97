package epp

import "github.com/windtunnel/windtunnel/core/epp/picker"

// decisions holds the decisions that are kept for people, the newest last, and the memory of decisions that nobody
// reads any longer. A decision that reuses old memory makes no garbage.
type decisions struct {
	keep   int
	list   []*picker.Decision
	shared int // number of the oldest that another Machine keeps, too
	free   []*picker.Decision
}

// maxRemembered bounds the history by rows (decisions times endpoints), since each decision keeps its candidates and
// their scores.
const maxRemembered = 200_000

func (m *Machine) remember(d *picker.Decision) {
	x := &m.decisions
	if x.keep <= 0 {
		return
	}
	x.list = append(x.list, d)
	keep := max(16, min(x.keep, maxRemembered/(len(d.View.States)+1)))
	n := len(x.list) - keep
	if n <= 0 {
		return
	}
	for _, old := range x.list[min(n, x.shared):n] {
		if old.Err == nil && !old.InForce() {
			x.free = append(x.free, old)
		}
	}
	x.shared = max(0, x.shared-n)
	clear(x.list[:n])
	x.list = x.list[n:]
}

// reuse returns memory for a decision, nil if there is none.
func (x *decisions) reuse() *picker.Decision {
	n := len(x.free)
	if n == 0 {
		return nil
	}
	d := x.free[n-1]
	x.free[n-1], x.free = nil, x.free[:n-1]
	return d
}

// forget frees a decision that is over, unless it is remembered.
func (x *decisions) forget(d *picker.Decision) {
	if x.keep <= 0 {
		x.free = append(x.free, d)
	}
}

// History returns the remembered decisions, oldest first. The caller reads them during the Machine's turn.
func (m *Machine) History() []*picker.Decision { return m.decisions.list }

// Inherit takes over another Machine's remembered decisions when a configuration changes. The caller holds both
// Machines' turns.
func (m *Machine) Inherit(old *Machine) {
	m.decisions.list = append(append([]*picker.Decision(nil), old.decisions.list...), m.decisions.list...)
	m.decisions.shared = len(old.decisions.list)
	old.decisions.shared = len(old.decisions.list) + old.decisions.keep // neither may reuse them
}
