package disagg

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// LegKind is the purpose of a leg.
type LegKind uint8

// The kinds of legs.
const (
	Prefill LegKind = iota
	Decode
	Bootstrap // asks the prefill server for its engines, for the connector
	Encode    // sends one image, sound or film to an encode server
)

func (k LegKind) String() string { return [...]string{"prefill", "decode", "bootstrap", "encode"}[k] }

// Leg is one request that the sidecar sends.
type Leg struct {
	ID   int
	Kind LegKind
	// Target is the server. The zero Target is the sidecar's own decode server, or the server of data-parallel rank
	// Rank where that is above 0.
	Target Target
	Rank   int
	// Method and Path, where not empty, replace the method and the path of the client's request.
	Method, Path string
	// Body is the leg's body. With Original it is the client's own body, byte for byte. For a described request both
	// are Described.
	Body      []byte
	Original  bool
	Described *described.Body
	// The sidecar sets the headers in Set, adds those in Add beside existing ones, and leaves out those in Remove.
	// Bootstrap and Encode legs have none of the client's headers.
	Set, Add header.List
	Remove   []string
	// Concurrent legs run beside the others. Their status is reported as soon as it arrives. The driver collects the
	// body of each of them that is no decode leg without a Collect.
	Concurrent bool
	// The request does not wait for Detached legs. The driver reads their answer without a Collect, and they continue
	// after the client has its answer. They end when the client leaves before.
	Detached bool
}

// Effect is one thing for the driver to do.
type Effect struct {
	At machine.Time
	Do Action
}

// Due returns At.
func (e Effect) Due() machine.Time { return e.At }

// Effects is the buffer that a ClientRequest fills.
type Effects = machine.Effects[Effect]

var _ machine.Machine[Message, *Effects] = (*ClientRequest)(nil)

// Action is the kind of an Effect: Call, Collect, Peek, Deliver, Drop, Say or Answer.
type Action interface{ action() }

type (
	// Call sends a leg. The driver reports its status as Head and its failure as Failed.
	Call struct{ Leg Leg }
	// Collect reads a leg's whole answer. The driver reports it as Whole.
	Collect struct{ Leg int }
	// Peek reads a leg's answer piece by piece. The driver reports each piece as Part.
	Peek struct{ Leg int }
	// Deliver sends a leg's answer to the client: its head, Before, and then the rest of its body. The whole body, with
	// Before, goes through Change where that is not nil.
	Deliver struct {
		Leg    int
		Before []byte
		Change Changer
		Head   header.List // replaces the leg's own headers of these names
	}
	// Drop closes a leg's answer unread, or gives up a leg that has no answer yet.
	Drop struct{ Leg int }
	// Say sends a piece of a streamed answer of the sidecar's own. The first piece begins it with status 200 and Head.
	// End marks the last one.
	Say struct {
		Head header.List
		Data []byte
		End  bool
	}
	// Answer ends the request with an answer of the sidecar's own, or with a leg's complete answer. A Verbatim answer
	// has that leg's head.
	Answer struct {
		Status   int
		Head     header.List
		Body     []byte
		Verbatim int // the id of the leg whose head the answer has; 0 is none
	}
)

func (Call) action()    {}
func (Collect) action() {}
func (Peek) action()    {}
func (Deliver) action() {}
func (Drop) action()    {}
func (Say) action()     {}
func (Answer) action()  {}

// Message is an event that the driver reports.
type Message interface{ message() }

type (
	// Start begins the request. It has the body where New did not get one.
	Start struct {
		Body      []byte
		Described *described.Body
	}
	// Head is a leg's status line and headers.
	Head struct {
		Leg         int
		Status      int
		ContentType string
		// Fetched is the time that the server reports for fetching the KV cache (TransferHeader); 0 where it reports
		// none.
		Fetched machine.Time
	}
	// Whole is a leg's whole body.
	Whole struct {
		Leg  int
		Body []byte
	}
	// Part is a piece of a leg's body. End marks the last one.
	Part struct {
		Leg  int
		Data []byte
		End  bool
	}
	// Failed reports a leg without an answer: the server was not reached, the connection broke, or the answer was too
	// long. Refused says that nothing listens at the address.
	Failed struct {
		Leg     int
		Reason  string
		Refused bool
	}
	// FirstByte reports that the client has received the first byte of its answer.
	FirstByte struct{ Bytes int }
	// Delivered reports that the client has the whole answer.
	Delivered struct{ Bytes int }
	// Gone reports that the client has left, or that its answer broke off.
	Gone struct{ Reason string }
)

func (Start) message()     {}
func (Head) message()      {}
func (Whole) message()     {}
func (Part) message()      {}
func (Failed) message()    {}
func (FirstByte) message() {}
func (Delivered) message() {}
func (Gone) message()      {}

// Times are the durations of a request at the sidecar, for its response headers. A duration is zero if its part did not
// happen.
type Times struct {
	Prefill machine.Time // from the start of the prefill leg to the end of its answer
	// Transfer is the duration of the KV transfer after a prefill leg, as the decode server reports it. Where the
	// decode server reports none and its answer streams, it is the time from the start of the decode leg to its first
	// byte. That is all that the sidecar can observe, and it includes the first decode step.
	Transfer machine.Time
	Decode   machine.Time // from the start of the decode leg to now, or to its end
	Total    machine.Time
	// Ahead counts the tokens of the answer that the decode server did not generate: in session mode, the prefill
	// leg's.
	Ahead int
}
