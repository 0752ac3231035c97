package stream

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// BodyMode is how Envoy sends one direction's body (ext_proc BodySendMode).
type BodyMode uint8

// The body modes. FullDuplex is the ecosystem's norm and the only one in which
// a request can be held.
const (
	FullDuplex BodyMode = iota
	Streamed
	Buffered
	NoBody
)

func (m BodyMode) String() string {
	return [...]string{"FULL_DUPLEX_STREAMED", "STREAMED", "BUFFERED", "NONE"}[m]
}

// Modes are what Envoy announces in its first message. The zero value is what
// the real EPP expects.
type Modes struct{ Request, Response BodyMode }

// MaxHeaders bounds the headers of a request, ten times as many as Envoy takes by
// default. One with more is answered with 431.
const MaxHeaders = 1000

// Config is what the streams of one pool share.
type Config struct {
	// Hold asks for the held-open flow of document 000 wherever a request can
	// be held: it has a body, its path takes one (HoldPath), and both body
	// modes are FullDuplex.
	Hold bool
	// MaxBodyBytes bounds a request's body; a larger one is answered with 413
	// in the middle of its upload. 0 means no bound.
	MaxBodyBytes int
	// BodyIdle bounds the pauses in a request's body, BodyTotal the time from the
	// headers to its end; they count until the request is whole, and not beyond.
	// Pauses are seen in full duplex alone. 0 means no bound.
	BodyIdle, BodyTotal machine.Time
	// Deadline bounds the time from the whole request to the decision, and
	// HoldLimit the time from part 1 to the first token. 0 means no bound.
	Deadline, HoldLimit machine.Time
	// MetadataBytes is the length of the random metadata.
	MetadataBytes int
	// Seed keys boundaries and metadata, together with the request id.
	Seed uint64
	// Errors is the form of the EPP's own answers.
	Errors ErrorStyle
	// Recorder takes the hop's flow events; nil records nothing.
	Recorder record.Recorder
	// Trace, if not nil, has the request go on with a traceparent of the EPP's own span.
	Trace *tracing.IDs
	// Told is what the record always says of a request that is here: which of
	// several pools and pickers this is. Nobody writes to it.
	Told []record.Detail
	// Brief records what happens to every request without details (record.Detailed).
	Brief bool
	// StandIns says that responses stand for longer ones, as in virtual time: the
	// sizes of their bodies are not recorded, and nobody reads their headers.
	StandIns bool
	// OnMetadata is told what was made up for a request; may be nil.
	OnMetadata func(request, metadata string)
}

func (c *Config) draw(purpose, request string) machine.Draw {
	return machine.DrawFor(c.Seed, "epp", purpose, request)
}

// HoldPath reports whether requests to a path are held: the ones that generate
// tokens. Embeddings and everything unknown are always plain.
func HoldPath(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimSuffix(path, "/")
	return strings.HasSuffix(path, "/chat/completions") || strings.HasSuffix(path, "/completions")
}

// Decision is the picker's answer for one request.
type Decision struct {
	// Answer, when not nil, ends the request at once; Reason is for the record.
	Answer *Answer
	Reason string
	// Endpoint is what the request is sent to, as ip:port; a list is the
	// fallback order.
	Endpoint string
	// Set and Remove change the request's headers. content-length and, for a
	// held request, content-type are the stream's own business.
	Set    header.List
	Remove []string
	// Body, or what it is Described by, replaces the request's body when Replace is
	// true.
	Body      []byte
	Described *described.Body
	Replace   bool
	// Plain keeps a request from being held although its pool holds.
	Plain bool
	// Leave ends the stream once the request is sent on: nobody looks at the
	// response.
	Leave bool
	// ResponseSet are headers to put on the response.
	ResponseSet header.List
	// Metadata is the dynamic metadata that goes with the header answer.
	Metadata Metadata
	// Details are for the record of the choice.
	Details []record.Detail
}

// Metadata is dynamic metadata for Envoy: values by namespace and key. They are
// of the types that JSON has.
type Metadata map[string]map[string]any

// Result is how a stream ended.
type Result uint8

// The results.
const (
	Running Result = iota
	PassedThrough
	Answered
	Failed
	Left // after the request, as the decision said
)

func (r Result) String() string {
	return [...]string{"running", "passed through", "answered", "failed", "left"}[r]
}

// Kind is what an effect asks for.
type Kind uint8

// The kinds of effects.
const (
	// Decide asks the picker; the driver answers with Decided. Head and Body
	// are the request; End says that there is no body to read, because none
	// came or because the body mode keeps it from the picker.
	Decide Kind = iota
	// ContinueHeaders lets the request headers wait for the body's answer
	// (BUFFERED mode).
	ContinueHeaders
	// SendRequestHeaders answers the request headers with Set and Remove.
	SendRequestHeaders
	// SendRequestBody sends bytes on as the request's body, End ends it. In
	// BUFFERED mode it carries Set and Remove as well and replaces the body
	// only when Replace is true.
	SendRequestBody
	// PassRequestTrailers answers the request's trailers.
	PassRequestTrailers
	// SendResponseHeaders answers the response headers with Set and Remove.
	SendResponseHeaders
	// SendResponseBody passes response bytes on.
	SendResponseBody
	// PassResponseTrailers answers the response's trailers.
	PassResponseTrailers
	// SendAnswer is an immediate response; it is the last effect.
	SendAnswer
	// Fail ends the stream with an error; it is the last effect.
	Fail
)

// Effect is one thing that should go out. Body is only valid until the next
// input. The request's body may be Described instead: to Decide, and with the
// last of the SendRequestBody effects which it would take; Body is then what
// is around it in part 1, empty for a plain one.
type Effect struct {
	At        machine.Time
	Kind      Kind
	Head      header.List // Decide
	Set       header.List
	Remove    []string
	Body      []byte
	Described *described.Body
	Piece     *described.Piece // in the place of a response's Body
	End       bool
	Replace   bool
	Answer    Answer
	Reason    string
	Metadata  Metadata
}

// Due is when it was due.
func (e Effect) Due() machine.Time { return e.At }

// MessageKind says what a Message tells.
type MessageKind uint8

// The messages, with the fields that they use.
const (
	Headers          MessageKind = iota // Modes, Head, End: the request's headers
	Body                                // Body, End: a piece of the request's body; or all of it, Described
	Trailers                            // the request ends with trailers
	Decided                             // Decision: the picker's
	ResponseHeaders                     // Head, End
	ResponseBody                        // Body or Piece, End
	ResponseTrailers                    // the response ends with trailers
	// Answer: the picker wants the request's room back, also in the middle of its response
	Evicted
	Broken   // Reason: the EPP itself cannot go on
	PeerGone // Reason: Envoy's stream ended, cleanly where there is none
)

// Message is what a stream is told. One may be used again and again.
type Message struct {
	Kind      MessageKind
	Modes     Modes
	Head      header.List
	Body      []byte
	Described *described.Body
	Piece     *described.Piece
	End       bool
	Decision  Decision
	Answer    Answer
	Reason    string
}
