package epp

import (
	"github.com/windtunnel/windtunnel/core/machine"
)

// Log is told of everything that enters a Machine, and of everything that comes
// of it but scrapes, in order and in the Machine's turn. Who plays the inputs
// into another Machine gets the same effects (core/epp/inputlog). It must not
// keep what it is told: memory is used again.
type Log interface {
	// Input is told of a message, before it takes effect, at the time of the
	// Machine.
	Input(now machine.Time, msg Message)
	// Effect is told of an effect.
	Effect(e *Effect)
}

// SetLog has the Machine tell a log from now on; nil reports none.
func (m *Machine) SetLog(l Log) { m.log = l }

// logged reports the log of a message. A request gets its number there when it
// comes for the first time.
func (m *Machine) logged(msg Message) {
	if m.log == nil || m.idle(msg) {
		return
	}
	if x, ok := msg.(interface{ request() *Request }); ok {
		r := x.request()
		if r.Serial == 0 {
			r.Serial = m.serial + 1
		}
		m.serial = max(m.serial, r.Serial)
	}
	m.log.Input(m.now, msg)
}

// idle says that nothing will come of a message.
func (m *Machine) idle(msg Message) bool {
	switch x := msg.(type) {
	case Answered:
		return !x.Asking() && x.state != told
	case Leave:
		return x.state == decided || x.state == ended
	case Done:
		return x.state == ended
	case Scraped:
		return x.Target.place < 0
	}
	return false
}

func (r *Request) request() *Request { return r }

// Seen says that the Machine has seen the response's headers.
func (r *Request) Seen() bool { return r.seen != nil }
