package disagg

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// LegKind is what a leg is for.
type LegKind uint8

// The kinds of legs.
const (
	Prefill LegKind = iota
	Decode
	Bootstrap // the connector asks which engine it is
	Encode    // one image, sound or film at an encode server
)

func (k LegKind) String() string { return [...]string{"prefill", "decode", "bootstrap", "encode"}[k] }

// Leg is one request that the sidecar sends.
type Leg struct {
	ID   int
	Kind LegKind
	// Target is the server; the zero Target is the sidecar's own decode server,
	// or where Rank is above 0 that of this data-parallel rank.
	Target Target
	Rank   int
	// Method and Path, where not empty, replace those of the client's request.
	Method, Path string
	// Body is what to send; with Original it is the client's own, byte for byte.
	// Of a request that is described both are Described.
	Body      []byte
	Original  bool
	Described *described.Body
	// Set are headers to set, Add those to put beside what is there, Remove
	// those to leave out. Bootstrap and Encode legs are the sidecar's own: they
	// have none of the client's headers.
	Set, Add header.List
	Remove   []string
	// Concurrent legs run beside the others. Their status comes back when it is
	// there; the body of one that is no decode leg is collected unasked.
	Concurrent bool
	// Detached legs are not waited for: their answer is read unasked, and they
	// go on after the client has its own. They end when the client leaves
	// before.
	Detached bool
}

// Effect is something that the driver is to do.
type Effect struct {
	At machine.Time
	Do Action
}

// Due is At.
func (e Effect) Due() machine.Time { return e.At }

// Effects is the buffer that a ClientRequest fills.
type Effects = machine.Effects[Effect]

var _ machine.Machine[Message, *Effects] = (*ClientRequest)(nil)

// Action is what an Effect asks for: Call, Collect, Peek, Deliver, Drop, Say or
// Answer.
type Action interface{ action() }

type (
	// Call sends a leg. Its status comes back as Head, its failure as Failed.
	Call struct{ Leg Leg }
	// Collect reads a leg's whole answer; it comes back as Whole.
	Collect struct{ Leg int }
	// Peek reads a leg's answer piece by piece; the pieces come back as Part.
	Peek struct{ Leg int }
	// Deliver hands a leg's answer to the client: its head, Before, and then
	// what is still to be read of it. All of the body, Before included, goes
	// through Change where that is not nil.
	Deliver struct {
		Leg    int
		Before []byte
		Change Changer
		Head   header.List // in place of the leg's own under these names
	}
	// Drop closes a leg's answer unread, or gives up a leg whose answer is not
	// there yet.
	Drop struct{ Leg int }
	// Say sends a piece of an answer of the sidecar's own that streams. The
	// first one begins it with status 200 and Head; End is the last.
	Say struct {
		Head header.List
		Data []byte
		End  bool
	}
	// Answer ends the request with an answer of the sidecar's own, or with a
	// leg's answer that is known whole. Verbatim answers carry that leg's head.
	Answer struct {
		Status   int
		Head     header.List
		Body     []byte
		Verbatim int // the leg whose head goes with it; 0 is none
	}
)

func (Call) action()    {}
func (Collect) action() {}
func (Peek) action()    {}
func (Deliver) action() {}
func (Drop) action()    {}
func (Say) action()     {}
func (Answer) action()  {}

// Message is something that the driver tells.
type Message interface{ message() }

type (
	// Start takes the request up, with its body where that was not there at New.
	Start struct {
		Body      []byte
		Described *described.Body
	}
	// Head is a leg's status line and headers.
	Head struct {
		Leg         int
		Status      int
		ContentType string
		// Fetched is how long the server says that it took to fetch the KV cache
		// (TransferHeader); 0 where it does not.
		Fetched machine.Time
	}
	// Whole is a leg's whole body.
	Whole struct {
		Leg  int
		Body []byte
	}
	// Part is a piece of a leg's body; End says that it was the last.
	Part struct {
		Leg  int
		Data []byte
		End  bool
	}
	// Failed is a leg without an answer: not reached, broken, too long. Refused
	// says that nobody listens there.
	Failed struct {
		Leg     int
		Reason  string
		Refused bool
	}
	// FirstByte says that the client's answer has begun to flow.
	FirstByte struct{ Bytes int }
	// Delivered says that the client has the whole answer.
	Delivered struct{ Bytes int }
	// Gone says that the client has left, or that its answer broke off.
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

// Times is what a request took at the sidecar, for its response headers; a
// zero span has not happened.
type Times struct {
	Prefill machine.Time // from the prefill leg's beginning to its whole answer
	// Transfer is of the KV cache after a prefill leg: as the decode server says,
	// or where it does not and its answer streams, from the decode leg's beginning
	// to the first byte: all that the sidecar can see of it, with the first decode
	// step in it.
	Transfer machine.Time
	Decode   machine.Time // from the decode leg's beginning to now, or its end
	Total    machine.Time
	// Ahead counts the answer's tokens that the decode server did not generate: in session mode the prefill leg's.
	Ahead int
}
