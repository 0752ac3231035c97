package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// message is what crosses hops: what happens when it arrives, to which request,
// and with what. It is a value and no function, as there are several for each
// request.
type message struct {
	do func(*message)
	on *way // that it is on
	r  *request
	f  func() // what happens, where it is rare

	head        header.List
	body        []byte
	described   *described.Body
	piece       *described.Piece
	answer      *stream.Answer
	status      int
	contentType string
	reason      string
	end         bool
}

// call is whatever it says.
func (m *message) call() { m.f() }

// begun is the client's headers and body at the EPP.
func (m *message) begun() {
	r := m.r
	if r.answers != nil {
		r.toClient(message{do: (*message).answered, answer: r.answers})
		return
	}
	switch {
	case len(r.pool.pickers) == 0:
		r.serveWithout()
		return
	case r.pool.Picker.Dies && !r.ask():
		return
	}
	x := r.modes()
	r.tell(stream.Message{Kind: stream.Headers, Head: m.head,
		Modes: stream.Modes{Request: x.request, Response: x.response}})
	if x.sees() {
		r.tell(stream.Message{Kind: stream.Body, Body: r.Body, Described: r.description(), End: true})
	}
	r.awaited()
}

// left is the EPP learning that the client has gone.
func (m *message) left() { m.r.tell(stream.Message{Kind: stream.PeerGone}) }

// forward and serverBody are what the EPP sends to what is behind Envoy.
func (m *message) forward() {
	if !m.r.gone {
		m.r.forward(m.head)
	}
}

func (m *message) serverBody() {
	if !m.r.gone {
		m.r.serverBody(m.body, m.described, m.end)
	}
}

// dropped is what is behind Envoy learning that nobody waits any more.
func (m *message) dropped() {
	m.r.gone = true
	m.r.dropServer(m.reason)
}

// responded is a piece of the response at the EPP, received and answered one at
// the client.
func (m *message) responded() { m.r.responded(m.status, m.contentType, m.body, m.piece, m.end) }
func (m *message) received()  { m.r.received(m.body, m.piece, m.end) }
func (m *message) answered()  { m.r.answered(*m.answer) }
