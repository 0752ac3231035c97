package epp

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Direct is a described request without a Stream: nothing looks at its messages, and it is decided at once.
type Direct struct {
	Request
	m      *Machine
	memory picker.RequestMemory
}

// Direct reports whether requests may be direct: there is no flow control, no plug-in looks at responses, nothing is
// logged or kept, and the record holds no details of decisions.
func (m *Machine) Direct() bool {
	return m.fc == nil && m.log == nil && m.decisions.keep <= 0 && !m.c.Follows && !m.c.Stream.Hold &&
		m.c.Stream.StandIns && m.c.RecordOnly && m.c.Stream.OnMetadata == nil && len(m.c.Stream.Identity) == 0 &&
		!m.hooks.ResponseHeader && !m.hooks.ResponseBody
}

// Arrive submits the request. Decided follows at once, or Ask; a Stream must then continue (Stream.Adopt). It returns
// false if the request is too long or cannot be parsed.
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

// To returns the destination of the unchanged request. It returns false if the request is refused or forwarded with
// changes; a Stream must then continue (Stream.Adopt).
func (x *Direct) To() (destination string, ok bool) {
	if x.Err != nil || x.Body.SkipResponse || x.ForwardDescribed() != x.Body.Of() {
		return "", false
	}
	x.SentBytes = x.SizeBytes
	x.m.p.Strip(x.Decision)
	x.Body.Forget()
	return x.Decision.Destination(), true
}

// Over states, after Done, that nothing uses the request any longer. The next decision reuses its decision's memory.
func (x *Direct) Over() { x.m.decisions.forget(x.Decision) }

// Adopt makes a Stream continue a request that was direct. At Decide the Machine knows the request already.
func (s *Stream) Adopt(x *Direct) { s.adopted, x.direct = &x.Request, false }
