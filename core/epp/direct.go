package epp

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Direct is a described request that needs no Stream: nobody looks at its messages, and
// all that is decided about it is where it goes, at once.
type Direct struct {
	Request
	m      *Machine
	memory picker.RequestMemory
}

// Direct reports whether requests may be direct: there is no flow control, no plug-in
// looks at responses, nothing is logged or remembered, and the record says nothing of its own.
func (m *Machine) Direct() bool {
	return m.fc == nil && m.log == nil && m.decisions.keep <= 0 && !m.c.Told && !m.c.Stream.Hold &&
		m.c.Stream.StandIns && m.c.RecordOnly && m.c.Stream.OnMetadata == nil && len(m.c.Stream.Told) == 0 &&
		!m.hooks.ResponseHeader && !m.hooks.ResponseBody
}

// Arrive has the request decided. Decided follows at once, or Ask, which a Stream has
// to go on from (Stream.Adopt); it is false where the request is not even read.
func (x *Direct) Arrive(m *Machine, door Door, head header.List, d *described.Body, number uint64, owner any) bool {
	if most := m.c.Stream.MaxBodyBytes; most > 0 && d.Len() > most {
		return false
	}
	x.Request, x.m = Request{Owner: owner, direct: true}, m
	r, err := m.p.NewDescribedRequestIn(&x.memory, head, d, number)
	if err != nil {
		return false
	}
	x.Request.Request = r
	door.Input(Arrive{&x.Request})
	return true
}

// To is where the request goes, as it is. It is false where it is refused, or goes as
// another one: then a Stream goes on with it (Stream.Adopt).
func (x *Direct) To() (destination string, ok bool) {
	if x.Err != nil || x.Body.SkipResponse || x.ForwardDescribed() != x.Body.Of() {
		return "", false
	}
	x.SentBytes = x.SizeBytes
	x.m.p.Strip(x.Decision)
	x.Body.Forget()
	return x.Decision.Destination(), true
}

// Over says, after Done, that nobody goes on with the request any more: the next decision has the memory of
// this one's.
func (x *Direct) Over() { x.m.decisions.forget(x.Decision) }

// Adopt has a Stream whose request was direct go on with it: at Decide the Machine knows
// it already.
func (s *Stream) Adopt(x *Direct) { s.adopted, x.direct = &x.Request, false }
