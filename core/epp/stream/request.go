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

// headers are the request's; end means that there is no body. A second header
// message is ignored, as by the real EPP.
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
		// The headers cannot wait for a body that only comes once they are
		// answered, or never: the decision is made without it.
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

// awaitMore sets the deadline of the body's next piece. Envoy collects a buffered
// body by itself, so its pauses are not seen.
func (s *Stream) awaitMore() {
	s.deadline = s.bodyUntil
	if s.cfg.BodyIdle > 0 && s.modes.Request == FullDuplex {
		s.deadline = min(s.deadline, s.now.Add(s.cfg.BodyIdle))
	}
}

// requestBody is a piece of the request's body. The bytes are copied.
func (s *Stream) requestBody(chunk []byte, d *described.Body, end bool) {
	if d != nil && (s.state != awaitBody || s.modes.Request != FullDuplex || len(s.body) > 0) {
		chunk, d = d.Bytes(), nil
	}
	if s.modes.Request == Streamed && s.state != over && s.state != awaitHeaders {
		s.emit(Effect{Kind: SendRequestBody, Body: chunk, End: end})
		return
	}
	if s.state == awaitHeaders { // a body whose headers never came: the picker will say what it lacks
		s.state, s.bodyUntil = awaitBody, machine.Never
	}
	if s.state != awaitBody {
		return
	}
	s.told = d
	if s.cfg.MaxBodyBytes > 0 && s.bodyLen()+len(chunk) > s.cfg.MaxBodyBytes {
		s.answer(413, fmt.Sprintf("the request body has more than %d bytes; send a shorter prompt or raise the limit",
			s.cfg.MaxBodyBytes))
		return
	}
	s.body = append(s.body, chunk...)
	if end {
		s.requestWhole()
	} else {
		s.awaitMore()
	}
}

// trailers end the request instead of a last body message.
func (s *Stream) trailers() {
	switch s.state {
	case awaitBody:
		s.endsWith = endWithTrailers
		s.requestWhole()
	case awaitResponse, inResponse:
		if s.modes.Request == FullDuplex && s.endsWith == endWithBody {
			break // the body's end was here already: nothing waits for an answer
		}
		s.emit(Effect{Kind: PassRequestTrailers})
	}
}

func (s *Stream) requestWhole() {
	if s.detailed(record.RequestReceived, s.cfg.Told...) {
		details := append([]record.Detail{record.D("bytes", s.bodyLen()), record.D("method", s.head.Get(":method")),
			record.D("path", header.Open(s.head.Get(":path")))}, s.cfg.Told...)
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
	s.emit(Effect{Kind: Decide, Head: s.head, Body: s.body, Described: s.told, End: bodyless})
}

// take is told the picker's decision.
func (s *Stream) take(d Decision) {
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
		s.body, s.told = d.Body, d.Described
	}
	s.state = awaitResponse
	if s.cfg.Hold && !d.Plain && s.canHold() {
		s.hold()
	} else {
		s.passRequest()
	}
	s.body, s.told = nil, nil
}

// canHold reports whether this request may be held. A body mode other than full
// duplex cannot: Envoy would wait for the whole body before it sends any.
func (s *Stream) canHold() bool {
	return s.endsWith != endedByHeaders && s.bodyLen() > 0 && HoldPath(s.head.Get(":path")) &&
		s.modes.Request == FullDuplex && s.modes.Response == FullDuplex
}

func (s *Stream) hold() {
	d := s.cfg.draw("boundary", s.request)
	var boundary string
	if s.told != nil { // all else of it has no boundary
		boundary = held.NewBoundary(&d, s.told.Before, s.told.After)
	} else {
		boundary = held.NewBoundary(&d, s.body)
	}
	// The real EPP announces the new length; a held body has none yet.
	set := slices.DeleteFunc(
		append(slices.Clip(s.decided.Set), header.Header{Name: "content-type", Value: held.ContentType(boundary)}),
		func(h header.Header) bool { return h.Name == "content-length" })
	remove := append(slices.Clip(s.decided.Remove), "content-length")
	s.emit(Effect{Kind: SendRequestHeaders, Set: set, Remove: remove, Metadata: s.decided.Metadata})
	s.sendPart1(boundary, set, remove)
}

// changes returns a person which headers the EPP changed. Those that it sends on
// as they were are none.
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
		// Headers still wait in Envoy; the one body answer changes both.
		e.Kind, e.Body, e.End, e.Replace = SendRequestBody, s.body, true, s.decided.Replace
		s.emit(e)
	case s.told != nil:
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
