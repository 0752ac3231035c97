package epp

import (
	"cmp"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Log receives every message and every effect except scrapes, in order and during the Machine's turn. Replayed into
// another Machine, the messages give the same effects (core/epp/inputlog). A Log must not keep its arguments: the
// Machine reuses their memory.
type Log interface {
	// Input receives a message before it takes effect, with the Machine's time.
	Input(now machine.Time, msg Message)
	Effect(e *Effect)
}

// SetLog makes the Machine write to a log from now on; nil stops it.
func (m *Machine) SetLog(l Log) { m.log = l }

// logged passes a message to the log. A request gets its serial number with its first message.
func (m *Machine) logged(msg Message) {
	if m.log == nil || m.idle(msg) {
		return
	}
	if x, ok := msg.(interface{ request() *Request }); ok {
		r := x.request()
		r.Serial = cmp.Or(r.Serial, m.serial+1)
		m.serial = max(m.serial, r.Serial)
	}
	m.log.Input(m.now, msg)
}

// idle reports whether a message has no effect.
func (m *Machine) idle(msg Message) bool {
	switch x := msg.(type) {
	case Answered:
		return !x.Asking() && x.state != following
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

// Seen reports whether the Machine has seen the response's headers.
func (r *Request) Seen() bool { return r.seen != nil }
