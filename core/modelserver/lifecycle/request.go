// Package lifecycle is one request's life at a model server, plain or held-open,
// as a pure machine between the wire and the engine.
//
// It knows what may happen in which order (document 000, docs/documents.md): part 1 is submitted
// to the engine; the first token is sent while the request is still open; part
// 2 lets the engine go on; the metadata is echoed at the end. Whatever breaks
// that order is a violation, told to the client in the response. It also knows
// which flow events the hop "server" reports, so that a live and a virtual
// server report the same ones.
//
// A request has no timers. Every method takes the time and returns what to do;
// tokens between the first and the last pass it by, since nothing is decided
// about them.
package lifecycle

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Do is what the server should do next.
type Do uint8

// The things to do.
const (
	Nothing Do = iota
	// Submit gives the request to the engine; a held one with the wish to
	// pause after its first token.
	Submit
	// SendFirst sends 200 and the first token now, flushed.
	SendFirst
	// Resume lets the engine decode the rest of a held request.
	Resume
	// SendEnd sends the end of the response, with Echo where the request was
	// held.
	SendEnd
	// Refuse answers with an error status; no token has been sent. The engine
	// must abort the request if it has it (Effect.AbortEngine).
	Refuse
	// SendError ends a response that has already begun, telling Reason in the
	// place of the echo.
	SendError
	// Drop ends everything without a word: the peer is gone.
	Drop
)

// Effect is one thing to do, with what is needed to do it.
type Effect struct {
	Do Do
	// Echo is the metadata to send back (SendEnd of a held request).
	Echo string
	// Status and Reason belong to Refuse and SendError.
	Status int
	Reason string
	// AbortEngine is true when the engine still has the request.
	AbortEngine bool
}

// Request is one request at one model server.
type Request struct {
	request  string
	attempt  int
	endpoint string
	held     bool
	rec      record.Recorder
	state    state
	inEngine bool
	metadata string
}

type state uint8

const (
	receiving state = iota
	prefilling
	holding // the first token is out, part 2 is not here
	decoding
	ended
)

// Options of one request.
type Options struct {
	Request  string
	Attempt  int
	Endpoint string
	Held     bool
	Recorder record.Recorder
}

// New begins a request when its headers are here.
func New(o Options) *Request {
	return &Request{request: o.Request, attempt: o.Attempt, endpoint: o.Endpoint, held: o.Held, rec: o.Recorder}
}

// record reports a step. Callers that have details look for a recorder first,
// so that a request without one builds none.
func (r *Request) record(now machine.Time, step record.Step, details ...record.Detail) {
	if r.rec != nil {
		r.rec.Record(record.Event{Time: now, Request: r.request, Attempt: r.attempt, Hop: record.Server, Step: step,
			Endpoint: r.endpoint, Details: details})
	}
}

// Held tells whether the request is held open.
func (r *Request) Held() bool { return r.held }

// Received is told when part 1 of a held request, or the whole of a plain one,
// is here and readable. Details name what a person wants to see of it.
func (r *Request) Received(now machine.Time, payloadBytes int, details ...record.Detail) Effect {
	if r.state != receiving {
		return Effect{}
	}
	step := record.RequestReceived
	if r.held {
		step = record.Part1Received
	}
	if r.rec != nil {
		r.record(now, step, append([]record.Detail{record.D("bytes", payloadBytes)}, details...)...)
	}
	r.state, r.inEngine = prefilling, true
	return Effect{Do: Submit}
}

// PrefillStarted is told when the engine first schedules the request.
func (r *Request) PrefillStarted(now machine.Time, details ...record.Detail) {
	if r.state == prefilling {
		r.record(now, record.PrefillStarted, details...)
	}
}

// FirstToken is told when the engine has computed the prompt and the first
// token.
func (r *Request) FirstToken(now machine.Time, token string) Effect {
	if r.state != prefilling {
		return Effect{}
	}
	if r.rec != nil {
		r.record(now, record.PrefillFinished)
		r.record(now, record.FirstTokenSent, record.D("token", token))
	}
	if r.held {
		r.state = holding
	} else {
		r.state = decoding
		r.record(now, record.DecodeStarted)
	}
	return Effect{Do: SendFirst}
}

// Part2Begun is told at the first byte behind part 1. The EPP must have seen
// the first token before it sends any.
func (r *Request) Part2Begun(now machine.Time) Effect {
	if r.state == receiving || r.state == prefilling {
		return r.Violation(now, "part 2 began before the first token was sent")
	}
	return Effect{}
}

// Part2 is told when part 2 and the end of the request are here.
func (r *Request) Part2(now machine.Time, metadata string) Effect {
	if r.state != holding {
		return r.Part2Begun(now)
	}
	if r.rec != nil {
		r.record(now, record.Part2Received, record.D("metadata", metadata), record.D("bytes", len(metadata)))
		r.record(now, record.DecodeStarted)
	}
	r.state, r.metadata = decoding, metadata
	return Effect{Do: Resume}
}

// Violation is told when the request's body is not what docs/flow.md says. A
// violation before the first token is answered with 400; a later one is told
// at the end of the response. After the end it is of no interest.
func (r *Request) Violation(now machine.Time, reason string) Effect {
	if r.state == ended {
		return Effect{}
	}
	r.record(now, record.Violation, record.D("reason", reason))
	e := Effect{Do: Refuse, Status: 400, Reason: reason, AbortEngine: r.inEngine}
	if r.state == holding || r.state == decoding {
		e.Do = SendError
	}
	r.end()
	return e
}

// Rejected is told when the request is refused before any token: a bad body,
// or an engine that does not take it.
func (r *Request) Rejected(now machine.Time, status int, reason string) Effect {
	if r.state != receiving && r.state != prefilling {
		return Effect{}
	}
	r.record(now, record.Rejected, record.D("status", status), record.D("reason", reason))
	r.end()
	return Effect{Do: Refuse, Status: status, Reason: reason}
}

// Generated is told when the engine has finished the request.
func (r *Request) Generated(now machine.Time, tokens int, finishReason string) Effect {
	if r.state != decoding {
		return Effect{}
	}
	if r.rec != nil {
		details := []record.Detail{record.D("tokens", tokens), record.D("finish_reason", finishReason)}
		if r.held {
			details = append(details, record.D("metadata", r.metadata))
		}
		r.record(now, record.LastTokenSent, details...)
	}
	r.end()
	return Effect{Do: SendEnd, Echo: r.metadata}
}

// Failed is told when the engine, or a fault, ends the request early: a crash,
// a lost KV transfer. Before the first token it is a 5xx, afterwards an error
// inside the response.
func (r *Request) Failed(now machine.Time, status int, reason string) Effect {
	if r.state == ended {
		return Effect{}
	}
	r.record(now, record.Aborted, record.D("reason", reason))
	e := Effect{Do: Refuse, Status: status, Reason: reason, AbortEngine: r.inEngine}
	if r.state == holding || r.state == decoding {
		e.Do = SendError
	}
	r.end()
	return e
}

// PeerGone is told when the connection or the stream is cut.
func (r *Request) PeerGone(now machine.Time, reason string) Effect {
	if r.state == ended {
		return Effect{}
	}
	r.record(now, record.Aborted, record.D("reason", reason))
	e := Effect{Do: Drop, AbortEngine: r.inEngine}
	r.end()
	return e
}

func (r *Request) end() { r.state, r.inEngine = ended, false }
