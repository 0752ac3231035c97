package epp

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// Request is one request at the picker, from its whole body to the end of its response. Its Stream and the Machine
// share it. Between Decided and Done it belongs to the Stream; the Machine touches it only during the Stream's
// messages.
type Request struct {
	*picker.Request
	// Needs are the plug-ins' calls to services outside, first those at arrival, later those before placement. Answers
	// are all answers so far.
	Needs   []picker.Need
	Answers []picker.Answer
	// Decision has the request's destination, and Err the reason for none. Both are nil before Decided. A decision with
	// an error is kept for the record.
	Decision *picker.Decision
	Err      *apierror.Error
	// Response holds what the picker knows of the response; nil before its headers.
	Response *picker.Response
	// ArrivedAt is when the request was whole.
	ArrivedAt machine.Time
	// Parsing is how long reading the body took, by the driver's stopwatch.
	Parsing machine.Time
	// SentBytes is the length of the forwarded body.
	SentBytes int
	// Kept and Moved count the session-affine plug-ins that kept the request at its session's endpoint, and that did
	// not.
	Kept, Moved int64
	// ErrSent is true once the Stream has sent Err to the client.
	ErrSent bool

	// Owner belongs to the driver, which finds its own object by it.
	Owner any
	// Serial is the request's number in the log, from 1; 0 before its first message.
	Serial uint64
	// Note is the request as the log writes it, where the driver has encoded it in advance.
	Note []byte

	details    []record.Detail // of the decision, for the record
	direct     bool            // Direct.Over frees its decision
	linked     bool            // in Machine.unfinished, by prev (older) and next
	prev, next *Request
	seen       *picker.Response // the response, once the Machine has seen it
	evictable  bool
	number     flowcontrol.RequestID // in flow control; 0 outside it
	admission  string                // outcome of flow control, for people
	state      requestState
}

type requestState uint8

const (
	arriving   requestState = iota
	asking                  // the driver has its Needs
	following               // waits for Follow
	queued                  // in flow control
	decided                 // Decided was emitted
	ended                   // Done has come, or there was nothing to release
	consulting              // like asking, before placement
)

// Answer reads the answers to an Ask, one for each of Request.Needs, and returns the message that brings them. Reading
// them is costly and happens here, outside the Machine's turn.
func (m *Machine) Answer(r *Request, answers []picker.Answer) Answered {
	m.p.Read(r.Request, answers)
	return Answered{r, answers}
}

// Asking reports whether the Machine waits for Answers. Call it after an effect that concerns the request.
func (r *Request) Asking() bool { return r.state == asking || r.state == consulting }

// Evictable reports whether flow control may end the request early.
func (r *Request) Evictable() bool { return r.evictable }

// Placed reports whether the request is decided and not over.
func (r *Request) Placed() bool { return r.state == decided }

// Over reports whether the Machine has finished the request. Its stream may still be open.
func (r *Request) Over() bool { return r.state == ended }
