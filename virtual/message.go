package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// message is a message between parts, with the method that handles it on arrival. It is a value and not a closure,
// because each request has several.
type message struct {
	do func(*message)
	on *way
	r  *request
	f  func() // for call

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

// call returns a message that calls f on arrival, for rare messages.
func call(f func()) message { return message{do: (*message).call, f: f} }

func (m *message) call() { m.f() }

// begun takes the client's headers and body at the EPP.
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
	r.toStream(stream.Message{Kind: stream.Headers, Head: m.head,
		Modes: stream.Modes{Request: x.request, Response: x.response}})
	if x.sees() {
		r.toStream(stream.Message{Kind: stream.Body, Body: r.Body, Described: r.description(), End: true})
	}
	r.awaited()
}

// left informs the EPP that the client is gone.
func (m *message) left() { m.r.toStream(stream.Message{Kind: stream.PeerGone}) }

// forward and serverBody take the headers and the body at the model server, or at the sidecar before it.
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

// dropped aborts the request at the servers.
func (m *message) dropped() {
	m.r.gone = true
	m.r.dropServer(m.reason)
}

// responded takes a piece of the response at the EPP; received and answered take one at the client.
func (m *message) responded() { m.r.responded(m.status, m.contentType, m.body, m.piece, m.end) }
func (m *message) received()  { m.r.received(m.body, m.piece, m.end) }
func (m *message) answered()  { m.r.answered(*m.answer) }
