// Package lifecycle holds the state of one request, plain or held-open, at a model server: a pure state machine between
// the wire and the engine.
//
// It enforces the order of events (document 000, docs/documents.md). The server submits part 1 to the engine, and sends
// the first token while the request is still open. With part 2 the engine continues, and the server echoes the metadata
// at the end. Any other order is a violation, which the response reports to the client. The package also reports the
// flow events of the hop "server", so that a live and a virtual server report the same ones.
//
// A request has no timers. Every method takes the time and returns the server's next action. The server sends tokens
// between the first and the last without it, because they need no decision.
package lifecycle

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Do is the server's next action.
type Do uint8

// The values of Do.
const (
	Nothing Do = iota
	// Submit gives the request to the engine. A held request asks the engine to pause after its first token.
	Submit
	// SendFirst sends 200 and the first token now, flushed.
	SendFirst
	// Resume lets the engine decode the rest of a held request.
	Resume
	// SendEnd sends the end of the response, with Echo if the request was held.
	SendEnd
	// Refuse answers with an error status, before any token was sent. The engine must abort the request if it has
	// received it (Effect.AbortEngine).
	Refuse
	// SendError ends a response that has already begun, with Reason in the place of the echo.
	SendError
	// Drop ends everything and sends nothing, because the peer is gone.
	Drop
)

// Effect is one action, with the data that it needs.
type Effect struct {
	Do Do
	// Echo is the metadata to return (SendEnd of a held request).
	Echo string
	// Status and Reason belong to Refuse and SendError.
	Status int
	Reason string
	// AbortEngine is true when the engine still has the request.
	AbortEngine bool
}

// Request is the state of one request at one model server.
type Request struct {
	o        Options
	state    state
	inEngine bool
	metadata string
}

type state uint8

const (
	receiving state = iota
	prefilling
	holding // the first token was sent, part 2 has not arrived
	decoding
	ended
)

// Options of a Request.
type Options struct {
	Request  string
	Attempt  int
	Endpoint string
	Held     bool
	Recorder record.Recorder
}

// New returns a request whose headers have arrived.
func New(o Options) *Request {
	return &Request{o: o}
}

// record adds a step to the record. Callers with details first check that there is a recorder, so that a request
// without one builds no details.
func (r *Request) record(now machine.Time, step record.Step, details ...record.Detail) {
	if r.o.Recorder != nil {
		r.o.Recorder.Record(record.Event{Time: now, Request: r.o.Request, Attempt: r.o.Attempt, Hop: record.Server,
			Step: step, Endpoint: r.o.Endpoint, Details: details})
	}
}

// Held reports whether the request is held open.
func (r *Request) Held() bool { return r.o.Held }

// Received notes that part 1 of a held request, or the whole of a plain one, has arrived and is readable. details are
// for people who read the record.
func (r *Request) Received(now machine.Time, payloadBytes int, details ...record.Detail) Effect {
	if r.state != receiving {
		return Effect{}
	}
	step := record.RequestReceived
	if r.o.Held {
		step = record.Part1Received
	}
	if r.o.Recorder != nil {
		r.record(now, step, append([]record.Detail{record.D("bytes", payloadBytes)}, details...)...)
	}
	r.state, r.inEngine = prefilling, true
	return Effect{Do: Submit}
}

// PrefillStarted notes that the engine has scheduled the request for the first time.
func (r *Request) PrefillStarted(now machine.Time, details ...record.Detail) {
	if r.state == prefilling {
		r.record(now, record.PrefillStarted, details...)
	}
}

// FirstToken notes that the engine has computed the prompt and the first token.
func (r *Request) FirstToken(now machine.Time, token string) Effect {
	if r.state != prefilling {
		return Effect{}
	}
	if r.o.Recorder != nil {
		r.record(now, record.PrefillFinished)
		r.record(now, record.FirstTokenSent, record.D("token", token))
	}
	if r.o.Held {
		r.state = holding
	} else {
		r.state = decoding
		r.record(now, record.DecodeStarted)
	}
	return Effect{Do: SendFirst}
}

// Part2Begun notes the first byte after part 1. The EPP must receive the first token before it sends any.
func (r *Request) Part2Begun(now machine.Time) Effect {
	if r.state == receiving || r.state == prefilling {
		return r.Violation(now, "part 2 began before the first token was sent")
	}
	return Effect{}
}

// Part2 notes that part 2 and the end of the request have arrived.
func (r *Request) Part2(now machine.Time, metadata string) Effect {
	if r.state != holding {
		return r.Part2Begun(now)
	}
	if r.o.Recorder != nil {
		r.record(now, record.Part2Received, record.D("metadata", metadata), record.D("bytes", len(metadata)))
		r.record(now, record.DecodeStarted)
	}
	r.state, r.metadata = decoding, metadata
	return Effect{Do: Resume}
}

// Violation notes that the request's body does not follow docs/flow.md. Before the first token, the server answers a
// violation with 400; later, it reports the violation at the end of the response. After the end it has no effect.
func (r *Request) Violation(now machine.Time, reason string) Effect {
	if r.state == ended {
		return Effect{}
	}
	r.record(now, record.Violation, record.D("reason", reason))
	return r.fail(400, reason)
}

// fail ends a request with an error: as the answer, or inside a response that has begun.
func (r *Request) fail(status int, reason string) Effect {
	e := Effect{Do: Refuse, Status: status, Reason: reason, AbortEngine: r.inEngine}
	if r.state == holding || r.state == decoding {
		e.Do = SendError
	}
	r.end()
	return e
}

// Rejected notes a refusal before any token: because of a bad body, or by the engine.
func (r *Request) Rejected(now machine.Time, status int, reason string) Effect {
	if r.state != receiving && r.state != prefilling {
		return Effect{}
	}
	r.record(now, record.Rejected, record.D("status", status), record.D("reason", reason))
	r.end()
	return Effect{Do: Refuse, Status: status, Reason: reason}
}

// Generated notes that the engine has finished the request.
func (r *Request) Generated(now machine.Time, tokens int, finishReason string) Effect {
	if r.state != decoding {
		return Effect{}
	}
	if r.o.Recorder != nil {
		details := []record.Detail{record.D("tokens", tokens), record.D("finish_reason", finishReason)}
		if r.o.Held {
			details = append(details, record.D("metadata", r.metadata))
		}
		r.record(now, record.LastTokenSent, details...)
	}
	r.end()
	return Effect{Do: SendEnd, Echo: r.metadata}
}

// Failed notes that the engine, or a fault, ends the request early: a crash, a lost KV transfer. Before the first token
// the answer is a 5xx, afterwards an error inside the response. Only the record has the cause, if there is one.
func (r *Request) Failed(now machine.Time, status int, reason string, cause error) Effect {
	if r.state == ended {
		return Effect{}
	}
	details := []record.Detail{record.D("reason", reason)}
	if cause != nil {
		details = append(details, record.D("cause", cause.Error()))
	}
	r.record(now, record.Aborted, details...)
	return r.fail(status, reason)
}

// PeerGone notes that the connection or the stream was cut.
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
