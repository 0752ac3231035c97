package epp

import "github.com/windtunnel/windtunnel/core/epp/picker"

// decisions are those that are remembered for people, the newest last, and the
// memory of those that nobody reads any more: with an old one's memory a
// decision makes no garbage.
type decisions struct {
	keep   int
	list   []*picker.Decision
	shared int // of the oldest, also remembered by another Machine
	free   []*picker.Decision
}

// maxRemembered bounds the history by rows (decisions times endpoints), since
// each decision keeps its candidates and their scores.
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

// spare is memory for a decision; nil where there is none.
func (x *decisions) spare() *picker.Decision {
	n := len(x.free)
	if n == 0 {
		return nil
	}
	d := x.free[n-1]
	x.free[n-1], x.free = nil, x.free[:n-1]
	return d
}

// forget gives up a decision that is over and was never remembered.
func (x *decisions) forget(d *picker.Decision) {
	if x.keep <= 0 {
		x.free = append(x.free, d)
	}
}

// History returns the remembered decisions, oldest first; to be read in the
// Machine's turn.
func (m *Machine) History() []*picker.Decision { return m.decisions.list }

// Inherit takes over what outlives a configuration: what another Machine
// remembers. Both are in their turn.
func (m *Machine) Inherit(old *Machine) {
	m.decisions.list = append(append([]*picker.Decision(nil), old.decisions.list...), m.decisions.list...)
	m.decisions.shared = len(old.decisions.list)
	old.decisions.shared = len(old.decisions.list) + old.decisions.keep // neither may use them again
}
