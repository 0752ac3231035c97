package stream

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// headers takes the request's headers; end means that there is no body. Like the real EPP, it ignores a second header
// message.
func (s *Stream) headers(modes Modes, head header.List, end bool) {
	if s.state != awaitHeaders {
		return
	}
	s.request, s.head, s.modes = head.Get("x-request-id"), head, modes
	s.state = awaitBody
	switch {
	case len(head) > MaxHeaders:
		s.answer(431, fmt.Sprintf("the request has %d headers; at most %d are taken", len(head), MaxHeaders))
	case end:
		s.endsWith = endedByHeaders
		s.requestWhole()
	case modes.Request == Buffered:
		s.emit(Effect{Kind: ContinueHeaders})
	case modes.Request == Streamed || modes.Request == NoBody:
		// Envoy sends the body only once the headers are answered, or never, so the decision is made without it.
		s.requestWhole()
	}
	if s.state == awaitBody {
		s.bodyUntil = machine.Never
		if s.cfg.BodyTotal > 0 {
			s.bodyUntil = s.now.Add(s.cfg.BodyTotal)
		}
		s.awaitMore()
	}
}

// awaitMore sets the deadline of the body's next piece. Envoy collects a buffered body by itself, so that its pauses
// are not visible here.
func (s *Stream) awaitMore() {
	s.deadline = s.bodyUntil
	if s.cfg.BodyIdle > 0 && s.modes.Request == FullDuplex {
		s.deadline = min(s.deadline, s.now.Add(s.cfg.BodyIdle))
	}
}

// requestBody takes a piece of the request's body. The stream keeps a whole body as it came, and joins the pieces of
// others in a buffer of its own.
func (s *Stream) requestBody(chunk []byte, d *described.Body, end bool) {
	if d != nil && (s.state != awaitBody || s.modes.Request != FullDuplex || len(s.body) > 0) {
		chunk, d = d.Bytes(), nil
	}
	if s.modes.Request == Streamed && s.state != over && s.state != awaitHeaders {
		s.emit(Effect{Kind: SendRequestBody, Body: chunk, End: end})
		return
	}
	if s.state == awaitHeaders { // a body without headers: the picker reports what is missing
		s.state, s.bodyUntil = awaitBody, machine.Never
	}
	if s.state != awaitBody {
		return
	}
	s.described = d
	if s.cfg.MaxBodyBytes > 0 && s.bodyLen()+len(chunk) > s.cfg.MaxBodyBytes {
		s.answer(413, fmt.Sprintf("the request body has more than %d bytes; send a shorter prompt or raise the limit",
			s.cfg.MaxBodyBytes))
		return
	}
	if len(s.body) == 0 {
		s.body = slices.Clip(chunk) // what is appended to it goes elsewhere
	} else {
		s.body = append(s.body, chunk...)
	}
	if end {
		s.requestWhole()
	} else {
		s.awaitMore()
	}
}

// trailers ends a request that has no last body message.
func (s *Stream) trailers() {
	switch s.state {
	case awaitBody:
		s.endsWith = endWithTrailers
		s.requestWhole()
	case awaitResponse, inResponse:
		if s.modes.Request == FullDuplex && s.endsWith == endWithBody {
			break // the body has already ended: nothing waits for an answer
		}
		s.emit(Effect{Kind: PassRequestTrailers})
	}
}

func (s *Stream) requestWhole() {
	if s.detailed(record.RequestReceived, s.cfg.Identity...) {
		details := append([]record.Detail{record.D("bytes", s.bodyLen()), record.D("method", s.head.Get(":method")),
			record.D("path", header.Open(s.head.Get(":path")))}, s.cfg.Identity...)
		if v := s.head.Get(tracing.Header); v != "" {
			details = append(details, record.D(tracing.Header, v))
		}
		s.record(s.now, record.RequestReceived, details...)
	}
	s.state, s.deadline = awaitDecision, machine.Never
	if s.cfg.Deadline > 0 {
		s.deadline = s.now.Add(s.cfg.Deadline)
	}
	bodyless := s.endsWith == endedByHeaders || s.modes.Request == Streamed || s.modes.Request == NoBody
	s.emit(Effect{Kind: Decide, Head: s.head, Body: s.body, Described: s.described, End: bodyless})
}

// decide takes the picker's decision.
func (s *Stream) decide(d Decision) {
	if s.state != awaitDecision {
		return
	}
	s.deadline = machine.Never
	s.decided = d
	if d.Answer != nil {
		s.answerWith(s.now, *d.Answer, d.Reason)
		return
	}
	if s.recording() {
		s.record(s.now, record.EndpointPicked, d.Details...)
	}
	if d.Replace {
		s.body, s.described = d.Body, d.Described
	}
	s.state = awaitResponse
	if s.cfg.Hold && !d.Plain && s.canHold() {
		s.hold()
	} else {
		s.passRequest()
	}
	s.body, s.described = nil, nil
}

// canHold reports whether this request may be held. Body modes other than full duplex rule it out: Envoy would wait for
// the whole body before it sends any.
func (s *Stream) canHold() bool {
	return s.endsWith != endedByHeaders && s.bodyLen() > 0 && HoldPath(s.head.Get(":path")) &&
		s.modes.Request == FullDuplex && s.modes.Response == FullDuplex
}

func (s *Stream) hold() {
	d := s.cfg.draw("boundary", s.request)
	var boundary string
	if s.described != nil { // the rest of the body cannot contain a boundary
		boundary = held.NewBoundary(&d, s.described.Before, s.described.After)
	} else {
		boundary = held.NewBoundary(&d, s.body)
	}
	// The real EPP sets the new length; a held body's length is not known yet.
	set := slices.DeleteFunc(
		append(slices.Clip(s.decided.Set), header.Header{Name: "content-type", Value: held.ContentType(boundary)}),
		func(h header.Header) bool { return h.Name == "content-length" })
	remove := append(slices.Clip(s.decided.Remove), "content-length")
	s.emit(Effect{Kind: SendRequestHeaders, Set: set, Remove: remove, Metadata: s.decided.Metadata})
	s.sendPart1(boundary, set, remove)
}

// changes returns details of the headers that the EPP changed, without those that it forwards unchanged.
func (s *Stream) changes(set header.List, remove []string) []record.Detail {
	var out []record.Detail
	var names []string
	for _, h := range set {
		if was, there := s.head.Lookup(h.Name); !there || was != h.Value {
			names = append(names, h.Name)
		}
	}
	if len(names) > 0 {
		out = append(out, record.D("headers_set", names))
	}
	if len(remove) > 0 {
		out = append(out, record.D("headers_removed", remove))
	}
	return out
}

func (s *Stream) passRequest() {
	if s.detailed(record.RequestPassed) {
		s.record(s.now, record.RequestPassed,
			append([]record.Detail{record.D("bytes", s.bodyLen())}, s.changes(s.decided.Set, s.decided.Remove)...)...)
	}
	e := Effect{Kind: SendRequestHeaders, Set: s.decided.Set, Remove: s.decided.Remove, Metadata: s.decided.Metadata}
	switch {
	case s.endsWith == endedByHeaders, s.modes.Request == Streamed, s.modes.Request == NoBody:
		s.emit(e)
	case s.modes.Request == Buffered:
		// Envoy still holds the headers; the one body answer changes both.
		e.Kind, e.Body, e.End, e.Replace = SendRequestBody, s.body, true, s.decided.Replace
		s.emit(e)
	case s.described != nil:
		s.emit(e)
		s.sendDescribed(nil, s.endsWith == endWithBody)
	default:
		s.emit(e)
		s.sendBody(SendRequestBody, s.body, s.endsWith == endWithBody)
	}
	if s.endsWith == endWithTrailers {
		s.emit(Effect{Kind: PassRequestTrailers})
	}
	if s.decided.Leave {
		s.end(Left)
	}
}
