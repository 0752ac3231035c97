package stream

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// BodyMode is how Envoy sends the body in one direction (ext_proc BodySendMode).
type BodyMode uint8

// The body modes. FullDuplex is the usual mode, and the only one in which a request can be held.
const (
	FullDuplex BodyMode = iota
	Streamed
	Buffered
	NoBody
)

func (m BodyMode) String() string {
	return [...]string{"FULL_DUPLEX_STREAMED", "STREAMED", "BUFFERED", "NONE"}[m]
}

// Modes are the body modes in Envoy's first message. The real EPP expects the zero value.
type Modes struct{ Request, Response BodyMode }

// MaxHeaders limits a request's headers to ten times Envoy's default limit. A request with more gets 431.
const MaxHeaders = 1000

// Config is the configuration that the streams of one pool share.
type Config struct {
	// Hold enables the held-open flow of document 000 for every request that can be held: it has a body, HoldPath is
	// true for its path, and both body modes are FullDuplex.
	Hold bool
	// LosePart2 is a fault: the stream never sends part 2, so HoldLimit ends each held request.
	LosePart2 bool
	// MaxBodyBytes limits a request's body. A larger one gets 413 in the middle of its upload. 0 is no limit.
	MaxBodyBytes int
	// BodyIdle limits the pauses in a request's body, BodyTotal the time from the headers to the body's end. Pauses are
	// only visible in full duplex. 0 is no limit.
	BodyIdle, BodyTotal machine.Time
	// Deadline limits the time from the whole request to the decision, HoldLimit the time from part 1 to the first
	// token. 0 is no limit.
	Deadline, HoldLimit machine.Time
	// MetadataBytes is the length of the random metadata.
	MetadataBytes int
	// Seed keys boundaries and metadata, together with the request id.
	Seed uint64
	// Errors is the form of the EPP's own answers.
	Errors ErrorStyle
	// Recorder takes the hop's flow events; nil records nothing.
	Recorder record.Recorder
	// Trace, if not nil, adds a traceparent of the EPP's own span to the request.
	Trace *tracing.IDs
	// Identity is added to every RequestReceived event: which of several pools and pickers this is. Read-only.
	Identity []record.Detail
	// Brief records every request's steps without details (record.Detailed).
	Brief bool
	// StandIns states that responses stand for longer ones, as in virtual time: their bodies' sizes are not recorded,
	// and nothing reads their headers.
	StandIns bool
	// OnMetadata is called with the metadata generated for a request; may be nil.
	OnMetadata func(request, metadata string)
}

func (c *Config) draw(purpose, request string) machine.Draw {
	return machine.DrawFor(c.Seed, "epp", purpose, request)
}

// HoldPath reports whether requests to a path may be held: those that generate tokens. Embeddings and unknown paths are
// never held.
func HoldPath(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimSuffix(path, "/")
	return strings.HasSuffix(path, "/chat/completions") || strings.HasSuffix(path, "/completions")
}

// Decision is the picker's answer for one request.
type Decision struct {
	// Answer, if not nil, ends the request at once; Reason is for the record.
	Answer *Answer
	Reason string
	// Endpoint is the request's destination as ip:port, or a list in fallback order.
	Endpoint string
	// Set and Remove change the request's headers. The stream itself sets content-length and, for a held request,
	// content-type.
	Set    header.List
	Remove []string
	// Body, or the body Described, replaces the request's body if Replace is true.
	Body      []byte
	Described *described.Body
	Replace   bool
	// Plain exempts a request from holding.
	Plain bool
	// Leave ends the stream once the request is forwarded: nothing reads the response.
	Leave bool
	// ResponseSet are headers to set on the response.
	ResponseSet header.List
	// Metadata is the dynamic metadata of the header answer.
	Metadata Metadata
	// Details are for the event EndpointPicked.
	Details []record.Detail
}

// Metadata is dynamic metadata for Envoy: values by namespace and key, of JSON's types.
type Metadata map[string]map[string]any

// Result is the end of a stream.
type Result uint8

const (
	Running Result = iota
	PassedThrough
	Answered
	Failed
	Left // after the request, as the decision required
)

func (r Result) String() string {
	return [...]string{"running", "passed through", "answered", "failed", "left"}[r]
}

// Kind is an effect's type.
type Kind uint8

// The kinds of effects.
const (
	// Decide asks the picker; the driver replies with Decided. Head and Body are the request. End states that the
	// picker gets no body: none came, or the body mode keeps it back.
	Decide Kind = iota
	// ContinueHeaders answers the request headers, which then wait for the body's answer (BUFFERED mode).
	ContinueHeaders
	// SendRequestHeaders answers the request headers with Set and Remove.
	SendRequestHeaders
	// SendRequestBody forwards bytes of the request's body; End ends it. In BUFFERED mode it also carries Set and
	// Remove, and replaces the body only if Replace is true.
	SendRequestBody
	// PassRequestTrailers answers the request's trailers.
	PassRequestTrailers
	// SendResponseHeaders answers the response headers with Set and Remove.
	SendResponseHeaders
	// SendResponseBody forwards bytes of the response.
	SendResponseBody
	// PassResponseTrailers answers the response's trailers.
	PassResponseTrailers
	// SendAnswer sends an immediate response; it is the last effect.
	SendAnswer
	// Fail ends the stream with an error; it is the last effect.
	Fail
)

// Effect is one message to send. Body is only valid until the next input. A request's body may be Described instead: in
// Decide, and in the last of the SendRequestBody effects that it would need. Body then holds the bytes around it in
// part 1, and is empty for a plain request.
type Effect struct {
	At        machine.Time
	Kind      Kind
	Head      header.List // Decide
	Set       header.List
	Remove    []string
	Body      []byte
	Described *described.Body
	Piece     *described.Piece // instead of a response's Body
	End       bool
	Replace   bool
	Answer    Answer
	Reason    string
	Metadata  Metadata
}

// Due returns the time at which the effect was due.
func (e Effect) Due() machine.Time { return e.At }

// MessageKind is a message's type.
type MessageKind uint8

// The messages, with the fields that they use.
const (
	Headers          MessageKind = iota // Modes, Head, End: the request's headers
	Body                                // Body, End: a piece of the request's body; or Described: all of it
	Trailers                            // the request ends with trailers
	Decided                             // Decision: the picker's decision
	ResponseHeaders                     // Head, End
	ResponseBody                        // Body or Piece, End
	ResponseTrailers                    // the response ends with trailers
	// Answer: flow control evicts the request, even in the middle of its response
	Evicted
	Broken   // Reason: the EPP itself has failed
	PeerGone // Reason: Envoy's stream ended; cleanly if empty
)

// Message is an input of a Stream. The caller may reuse it, but must not change the bytes of its Body: the stream keeps
// them.
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
