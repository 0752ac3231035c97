package epp

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// Request is one request at the picker, from its whole body to the end of its
// response. Its Stream and the Machine share it: between Decided and Done it is
// the Stream's, but for what the Machine does at the Stream's messages.
type Request struct {
	*picker.Request
	// Needs hold what plug-ins ask the outside, when the request comes and, others,
	// when it is about to be placed. Answers are all that came back.
	Needs   []picker.Need
	Answers []picker.Answer
	// Decision says where the request goes, and Err why nowhere. Both are nil
	// before Decided; a decision with an error of its own is kept for the record.
	Decision *picker.Decision
	Err      *apierror.Error
	// Response holds what the picker knows of the response; nil before its headers.
	Response *picker.Response
	// ArrivedAt is when the request was whole.
	ArrivedAt machine.Time
	// Parsing is how long it took to read the body, by the driver's stopwatch.
	Parsing machine.Time
	// SentBytes is the length of the body as it was sent on.
	SentBytes int
	// Kept and Moved count the session-affine plug-ins that kept the request
	// where its session was, and that did not.
	Kept, Moved int64
	// Told says that the client has been told of Err by its Stream.
	Told bool

	// Owner is the driver's: whom to tell.
	Owner any
	// Serial is the request's number in the log, from 1; 0 before it was there.
	Serial uint64
	// Note is the request as the log writes it, where the driver has it written
	// beforehand.
	Note []byte

	direct     bool // its decision is needed until Direct.Over
	linked     bool // in Machine.flying, by prev (older) and next
	prev, next *Request
	seen       *picker.Response // the response, once it was the Machine's turn
	evictable  bool
	number     flowcontrol.RequestID // in flow control; 0 where it does not pass it
	admission  string                // in words
	state      requestState
}

type requestState uint8

const (
	arriving   requestState = iota
	asking                  // the driver has its Needs
	told                    // it waits for Tell
	queued                  // in flow control
	decided                 // Decided is out
	ended                   // and Done is in, or there was nothing to give back
	consulting              // as asking, about to be placed
)

// Answer brings what came back of an Ask: one answer for each of Request.Needs.
// What they say about the request's content is read here, which costs, and takes
// no turn of the Machine.
func (m *Machine) Answer(r *Request, answers []picker.Answer) Answered {
	m.p.Read(r.Request, answers)
	return Answered{r, answers}
}

// Asking says that the Machine waits for Answers. It and Refused are to be asked
// after an effect that concerns the request.
func (r *Request) Asking() bool { return r.state == asking || r.state == consulting }

// Evictable says that flow control may end the request early.
func (r *Request) Evictable() bool { return r.evictable }

// Placed says that the request is decided, and not over.
func (r *Request) Placed() bool { return r.state == decided }

// Over says that the Machine has done with the request. Its stream may not have.
func (r *Request) Over() bool { return r.state == ended }
