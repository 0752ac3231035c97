// Package stream is the EPP's side of one request: the machine between the messages from Envoy's ext_proc filter and
// the EPP's replies.
//
// It knows nothing of protobuf or gRPC. Its inputs are Messages (request headers, body, trailers, the picker's
// decision, response headers, body, trailers, the peer's end) and the time; its outputs are Effects in order. A stream
// ends exactly once, in one of three ways, whatever comes in whatever order: the request was passed through, the EPP
// answered it, or the stream failed. After a whole response only trailers are still answered.
//
// A held request (document 000, docs/documents.md) goes out as part 1, with the upstream request left open. Part 2 and
// the end of the request follow only after the first non-empty chunk of a 2xx response. Anything else, Envoy's own 503
// included, is not a first token and is passed through as a failure. A held request's response headers wait for that
// chunk, so that a model server that sends 200 and then nothing causes a 502 and not an empty 200.
//
// Deadlines use Next and Advance: how long a body may take to arrive, how long the picker may take, and how long a
// request may be held.
//
// Begin with Stream, Message and Effect.
package stream

import (
	"cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/held"
)

// MaxChunkBytes limits one body message, as in the real EPP.
const MaxChunkBytes = 62_000

// Stream is one request at the EPP. Create it with New.
type Stream struct {
	cfg   Config
	state state
	now   machine.Time
	fx    *machine.Effects[Effect] // the caller's buffer, during a call

	request   string // x-request-id, for the record
	modes     Modes
	head      header.List
	body      []byte
	described *described.Body // the body, if it is described
	decided   Decision
	holding   bool // part 1 was sent, part 2 was not
	boundary  string
	metadata  string
	endsWith  ending // how the request must end

	deadline  machine.Time // machine.Never if none is set
	bodyUntil machine.Time // when the request's body must be whole

	status       int
	respBytes    int64
	result       Result
	respBodySeen bool
}

type state uint8

const (
	awaitHeaders  state = iota
	awaitBody           // request headers have come, the request's end has not
	awaitDecision       // the picker must decide
	awaitResponse       // the request was forwarded, whole or held
	inResponse          // response headers have come
	over                // ended in one of the three ways
)

// ending is the form of the end of the request.
type ending uint8

const (
	endWithBody     ending = iota // end_of_stream on the last body message
	endWithTrailers               // the client sent trailers: they end it
	endedByHeaders                // no body at all
)

// New starts a stream when Envoy opens it.
func New(cfg Config) *Stream {
	return &Stream{cfg: cfg, deadline: machine.Never}
}

// Next returns the time of the deadline, if one is set.
func (s *Stream) Next() (machine.Time, bool) {
	return s.deadline, s.deadline != machine.Never
}

// Input applies the deadline if it has passed, and then takes a message of Envoy's or of the picker's. A message that
// comes too late, twice or out of order has no effect.
func (s *Stream) Input(now machine.Time, m *Message, fx *machine.Effects[Effect]) {
	s.Advance(now, fx)
	s.fx = fx
	switch m.Kind {
	case Headers:
		s.headers(m.Modes, m.Head, m.End)
	case Body:
		s.requestBody(m.Body, m.Described, m.End)
	case Trailers:
		s.trailers()
	case Decided:
		s.decide(m.Decision)
	case ResponseHeaders:
		s.responseHeaders(m.Head, m.End)
	case ResponseBody:
		s.responseBody(m.Body, m.Piece, m.End)
	case ResponseTrailers:
		s.responseTrailers()
	case Evicted:
		if s.state != over {
			s.answerWith(s.now, m.Answer, "evicted by flow control")
		}
	case Broken:
		if s.state != over {
			s.fail(m.Reason)
		}
	case PeerGone: // Envoy closes the stream of a finished request, and of a request whose client left
		if s.state != over {
			s.fail(cmp.Or(m.Reason, "Envoy ended it: the client left, or Envoy answered itself"))
		}
	}
	s.fx = nil
}

// Advance applies the deadline if it has passed by now.
func (s *Stream) Advance(now machine.Time, fx *machine.Effects[Effect]) {
	s.now = max(s.now, now)
	if s.deadline > s.now {
		return
	}
	due := s.deadline
	s.deadline, s.fx = machine.Never, fx
	switch {
	case s.state == awaitBody && due == s.bodyUntil:
		s.answerAt(due, 408, "the request's body was not whole after "+s.cfg.BodyTotal.Duration().String())
	case s.state == awaitBody:
		s.answerAt(due, 408, "the request's body came to a halt: nothing came for "+s.cfg.BodyIdle.Duration().String())
	case s.state == awaitDecision:
		s.answerAt(due, 504, "the endpoint picker did not decide within "+s.cfg.Deadline.Duration().String())
	case s.holding:
		s.answerAt(due, 504, "no first token within the hold limit of "+s.cfg.HoldLimit.Duration().String())
	}
	s.fx = nil
}

// Result returns how the stream ended, or Running.
func (s *Stream) Result() Result { return s.result }

// Holding reports whether part 1 was sent and part 2 was not.
func (s *Stream) Holding() bool { return s.holding }

// Metadata returns the metadata generated for a held request, "" before part 2.
func (s *Stream) Metadata() string { return s.metadata }

// RequestID returns the request's x-request-id, empty before the headers.
func (s *Stream) RequestID() string { return s.request }

// emit adds an effect that is due now.
func (s *Stream) emit(e Effect) { s.emitAt(s.now, e) }

func (s *Stream) emitAt(at machine.Time, e Effect) {
	e.At = at
	s.fx.Add(e)
}

func (s *Stream) record(at machine.Time, step record.Step, details ...record.Detail) {
	s.cfg.Recorder.Record(record.Event{Time: at, Request: s.request, Attempt: 1, Hop: record.EPP, Step: step,
		Endpoint: s.decided.Endpoint, Details: details})
}

func (s *Stream) recording() bool { return s.cfg.Recorder != nil }

// detailed reports whether a step must be recorded with details. If only steps are recorded, it records the step
// itself, with the details that are always recorded.
func (s *Stream) detailed(step record.Step, always ...record.Detail) bool {
	if s.recording() && s.cfg.Brief {
		s.record(s.now, step, always...)
	}
	return s.recording() && !s.cfg.Brief
}

// answer ends the stream with an answer of the EPP's own.
func (s *Stream) answer(status int, message string) { s.answerAt(s.now, status, message) }

func (s *Stream) answerAt(at machine.Time, status int, message string) {
	s.answerWith(at, s.cfg.Errors.Answer(&apierror.Error{Status: status, Message: message}), message)
}

func (s *Stream) answerWith(at machine.Time, a Answer, reason string) {
	if s.recording() {
		s.record(at, record.Answered, record.D("status", a.Status), record.D("reason", reason))
	}
	s.emitAt(at, Effect{Kind: SendAnswer, Answer: a})
	s.end(Answered)
}

func (s *Stream) fail(reason string) {
	if s.recording() {
		s.record(s.now, record.StreamFailed, record.D("reason", reason))
	}
	s.emit(Effect{Kind: Fail, Reason: reason})
	s.end(Failed)
}

func (s *Stream) end(r Result) {
	s.state, s.result, s.holding, s.deadline = over, r, false, machine.Never
	s.body, s.described, s.head = nil, nil, nil
}

// bodyLen returns the length of the request's body.
func (s *Stream) bodyLen() int {
	if s.described != nil {
		return s.described.Len()
	}
	return len(s.body)
}

// Killed is the reason of streams that break because an incident ends the picker's process.
const Killed = "an incident killed the endpoint picker"

// sendBody emits bytes in chunks that Envoy accepts. The last chunk carries end.
func (s *Stream) sendBody(kind Kind, body []byte, end bool) {
	for len(body) > MaxChunkBytes {
		s.emit(Effect{Kind: kind, Body: body[:MaxChunkBytes]})
		body = body[MaxChunkBytes:]
	}
	if len(body) > 0 || end {
		s.emit(Effect{Kind: kind, Body: body, End: end})
	}
}

// sendDescribed is sendBody for a described request body with the bytes around it. It emits as many effects; the last
// has the body.
func (s *Stream) sendDescribed(around []byte, end bool) {
	for left := len(around) + s.described.Len(); left > MaxChunkBytes; left -= MaxChunkBytes {
		s.emit(Effect{Kind: SendRequestBody})
	}
	s.emit(Effect{Kind: SendRequestBody, Body: around, Described: s.described, End: end})
}

func (s *Stream) sendPart1(boundary string, set header.List, remove []string) {
	s.boundary = boundary
	part1 := held.Part1(s.boundary, s.body)
	if s.recording() {
		size := len(part1) - len(s.body) + s.bodyLen()
		s.record(s.now, record.Part1Sent,
			append([]record.Detail{record.D("bytes", size), record.D("payload_bytes", s.bodyLen()),
				record.D("boundary", s.boundary)}, s.changes(set, remove)...)...)
	}
	if s.described != nil {
		s.sendDescribed(part1, false)
	} else {
		s.sendBody(SendRequestBody, part1, false)
	}
	s.holding = true
	if s.cfg.HoldLimit > 0 {
		s.deadline = s.now.Add(s.cfg.HoldLimit)
	}
}

func (s *Stream) sendPart2() {
	d := s.cfg.draw("metadata", s.request)
	s.metadata = d.Letters(max(1, s.cfg.MetadataBytes))
	part2 := held.Part2(s.boundary, s.metadata)
	if s.recording() {
		s.record(s.now, record.MetadataGenerated, record.D("metadata", s.metadata))
		s.record(s.now, record.Part2Sent, record.D("bytes", len(part2)))
	}
	s.holding, s.deadline = false, machine.Never
	s.sendBody(SendRequestBody, part2, s.endsWith == endWithBody)
	if s.endsWith == endWithTrailers {
		s.emit(Effect{Kind: PassRequestTrailers})
	}
	if s.cfg.OnMetadata != nil {
		s.cfg.OnMetadata(s.request, s.metadata)
	}
}
