package epp

import (
	"bytes"
	"fmt"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// Stream is one ext_proc stream at the picker: core/epp/stream with what the picker reads of the request, changes in
// it, and does with the response. It is a machine.Machine[*stream.Message, *machine.Effects[stream.Effect]].
//
// Its effects are those of core/epp/stream. At Decide the driver passes Request to the Machine (Arrive), and calls
// Stream.Decide when the Machine emits Decided. All other effects go to Envoy.
type Stream struct {
	// Over, if not nil, is called when the stream ends, before the Machine releases what the request held.
	Over func()
	// Response is memory to reuse for the response; nil allocates.
	Response *picker.Response

	stream.Stream
	m       *Machine
	door    Door
	fx      machine.Effects[stream.Effect]
	effects [3]stream.Effect // memory of fx, which rarely holds more
	own     stream.Message   // the picker's own messages to the embedded stream
	modes   stream.Modes
	r       *Request
	adopted *Request // a request that was decided before
	subset  []string
	hinted  bool // the data plane sent a subset hint
	number  uint64
	arrived bool // the Machine has got the request, or is about to
	decided bool // the Machine's decision was taken
	settled bool
	head    header.List
	served  picker.Served
}

// NewStream starts a stream. A request without an id gets one from number.
func NewStream(m *Machine, door Door, number uint64) *Stream {
	s := new(Stream)
	s.Init(m, door, number)
	return s
}

// Init is NewStream in existing memory.
func (s *Stream) Init(m *Machine, door Door, number uint64) {
	*s = Stream{m: m, door: door, Stream: *stream.New(m.c.Stream), number: number}
	s.fx.List = s.effects[:0]
}

// Request returns the Machine's request; nil before Decide, and where the body cannot be read.
func (s *Stream) Request() *Request { return s.r }

// Subset sets the endpoints to which the data plane limits the choice: metadata envoy.lb.subset_hint of the newest body
// message that has any.
func (s *Stream) Subset(addresses []string, hinted bool) { s.subset, s.hinted = addresses, hinted }

// Served sets what the data plane reports about the server that answered. Call it before the response's headers.
func (s *Stream) Served(x picker.Served) { s.served = x }

// Advance applies the deadline if it has passed by now.
func (s *Stream) Advance(now machine.Time, fx *machine.Effects[stream.Effect]) {
	s.Stream.Advance(now, &s.fx)
	s.play(now, fx)
}

// Input takes a message of Envoy's.
func (s *Stream) Input(now machine.Time, msg *stream.Message, fx *machine.Effects[stream.Effect]) {
	switch msg.Kind {
	case stream.Headers:
		s.modes = msg.Modes
	case stream.ResponseHeaders:
		s.head = msg.Head
	}
	if msg.Kind == stream.PeerGone {
		if s.Advance(now, fx); s.arrived && !s.decided && s.r.state != arriving && s.Result() == stream.Running {
			s.door.Input(Leave{s.r}) // the decision ends the stream
			return
		}
	}
	s.Stream.Input(now, msg, &s.fx)
	s.play(now, fx)
}

// Decide continues with the Machine's decision.
func (s *Stream) Decide(now machine.Time, fx *machine.Effects[stream.Effect]) {
	if s.Result() == stream.Running {
		s.own.Decision = s.decision()
	}
	s.decided = true
	s.inputOwn(now, stream.Decided)
	s.play(now, fx)
}

// Evict ends the request early, because flow control needs its capacity.
func (s *Stream) Evict(now machine.Time, fx *machine.Effects[stream.Effect]) {
	s.own.Answer = s.m.c.Stream.Errors.Answer(flowcontrol.Evicted())
	s.inputOwn(now, stream.Evicted)
	s.play(now, fx)
}

// Fail ends the stream with an error of the picker's own and drops all pending effects.
func (s *Stream) Fail(now machine.Time, reason string, fx *machine.Effects[stream.Effect]) {
	s.fx.Reset()
	s.own.Reason = reason
	s.inputOwn(now, stream.Broken)
	s.play(now, fx)
}

// inputOwn passes the picker's own message to the embedded stream, with its kind.
func (s *Stream) inputOwn(now machine.Time, kind stream.MessageKind) {
	s.own.Kind = kind
	s.Stream.Input(now, &s.own, &s.fx)
	s.own = stream.Message{}
}

// play adds the picker's part to the embedded stream's effects and emits them.
func (s *Stream) play(now machine.Time, fx *machine.Effects[stream.Effect]) {
	for i := 0; i < len(s.fx.List); i++ {
		e, passed := &s.fx.List[i], true
		switch e.Kind {
		case stream.Decide:
			if passed = s.read(e); !passed {
				s.own.Decision = s.refusal()
				s.inputOwn(now, stream.Decided)
			}
		case stream.SendResponseHeaders:
			s.responseHeaders(now, e)
		case stream.SendResponseBody:
			s.responseBody(now, e, fx)
			passed = false
		case stream.PassResponseTrailers:
			if !s.settled {
				s.flush(now, fx)
			}
			if r := s.r; r != nil && r.Response != nil {
				e.Metadata = stream.Metadata(r.Response.Metadata())
			}
		}
		if passed {
			fx.Add(*e)
		}
		// A plug-in panicked at the response.
		if r := s.r; r != nil && r.Err != nil && s.decided && s.Result() == stream.Running {
			r.ErrSent = true
			s.own.Reason = r.Err.Message
			s.inputOwn(now, stream.Broken)
		}
	}
	s.fx.Reset()
	s.settle()
}

// settle sends Done once the stream is over.
func (s *Stream) settle() {
	if s.settled || s.Result() == stream.Running {
		return
	}
	s.settled = true
	if s.Over != nil {
		s.Over()
	}
	if s.arrived {
		if r := s.r; r.Response != nil {
			r.Response.Close()
		}
		s.door.Input(Done{s.r})
	}
}

// read parses the request. It returns false if the request is invalid.
func (s *Stream) read(e *stream.Effect) bool {
	if s.adopted != nil {
		s.r, s.arrived = s.adopted, true
		return true
	}
	began := s.m.p.Stopwatch()
	s.r = &Request{}
	if e.Described != nil {
		s.r.Request, s.r.Err = s.m.p.NewDescribedRequest(e.Head, e.Described, s.number)
	} else {
		s.r.Request, s.r.Err = s.m.p.NewRequest(e.Head, e.Body, !e.End, s.number)
	}
	s.r.Parsing = s.m.p.Stopwatch() - began
	if s.r.Err != nil {
		s.r.state = ended
		return false
	}
	if !e.End {
		s.r.Subset, s.r.HasSubset = s.subset, s.hinted
	}
	s.arrived = true
	return true
}

// decision returns the Machine's decision in core/epp/stream's form.
func (s *Stream) decision() stream.Decision {
	r := s.r
	if r.Err != nil {
		return s.refusal()
	}
	var out stream.Decision
	var body []byte
	if out.Described = r.ForwardDescribed(); out.Described != nil {
		r.SentBytes = out.Described.Len()
		out.Replace = out.Described != r.Body.Of()
	} else {
		var err error
		if body, err = r.ForwardBody(); err != nil {
			r.Err = &apierror.Error{Status: 500, Message: fmt.Sprintf("the model could not be rewritten: %v", err)}
			return s.refusal()
		}
		r.SentBytes = len(body)
	}
	d := r.Decision
	out.Set, out.Remove = d.RequestHeaders(r.SentBytes)
	out.Endpoint = d.Destination()
	if s.m.c.DocumentHeaders || s.m.c.ExplainHeaders {
		out.Set = append(out.Set, header.Header{Name: picker.HeaderTargetPod, Value: d.Targets[0].Endpoint.Address},
			header.Header{Name: picker.HeaderSelectedPod, Value: d.Targets[0].Endpoint.Name})
	}
	if ids := s.m.c.Stream.Trace; ids != nil {
		out.Set = append(out.Set,
			header.Header{Name: tracing.Header,
				Value: ids.Next(r.Headers.Get(tracing.Header), s.RequestID(), tracing.Gateway(1))})
	}
	if !s.m.c.RecordOnly {
		out.Metadata = s.metadata(out.Endpoint)
	}
	out.Details = r.details
	if s.m.c.RecordOnly && !s.m.asked(d) {
		s.m.p.Strip(d)
	}
	if r.Body != nil {
		out.Leave = r.Body.SkipResponse
		if out.Described == nil && !bytes.Equal(body, r.Body.Raw()) {
			out.Body, out.Replace = body, true
		}
		r.Body.Forget()
	}
	return out
}

// metadata returns the dynamic metadata that accompanies the request's headers.
func (s *Stream) metadata(endpoint string) stream.Metadata {
	lb := map[string]any{picker.HeaderDestination: endpoint}
	if s.m.c.EmitScores {
		if scores := s.r.Decision.Scores(); scores != nil {
			list := make(map[string]any, len(scores))
			for address, v := range scores {
				list[address] = v
			}
			lb[picker.KeyScores] = list
		}
	}
	return stream.Metadata{picker.NamespaceLB: lb}
}

func (s *Stream) refusal() stream.Decision {
	e := s.r.Err
	s.r.ErrSent = true
	a := s.m.c.Stream.Errors.Answer(e)
	return stream.Decision{Answer: &a, Reason: e.Code() + ": " + e.Message}
}

// responseHeaders shows the plug-ins the response's headers and adds those that they set. A response to an undecided
// request is Envoy's own, or comes from a server that the picker did not choose.
func (s *Stream) responseHeaders(now machine.Time, e *stream.Effect) {
	if s.r == nil || s.r.Request == nil {
		s.r = &Request{state: ended}
	}
	r := s.r
	if s.Response == nil {
		s.Response = new(picker.Response)
	}
	r.Response = s.m.p.ResponseIn(s.Response, now, r.Decision, s.head.Normalize())
	r.Response.Served = s.served
	if s.m.hooks.ResponseHeader && r.Response.Scheduled() {
		s.door.Input(Headers{r})
	}
	if s.m.c.Stream.StandIns {
		return
	}
	set := append(r.Response.SetHeaders(), s.m.explained(r.Decision)...)
	if len(e.Set) > 0 {
		set = append(e.Set[:len(e.Set):len(e.Set)], set...)
	}
	e.Set = set
	if r.Response.DropContentLength() {
		e.Remove = append(e.Remove[:len(e.Remove):len(e.Remove)], "content-length") // no longer true
	}
}

// responseBody shows the plug-ins a piece of the response. They may hold it back or lengthen it.
func (s *Stream) responseBody(now machine.Time, e *stream.Effect, fx *machine.Effects[stream.Effect]) {
	r := s.r
	if r == nil || r.Response == nil {
		fx.Add(*e)
		return
	}
	if e.Piece != nil {
		pass := r.Response.ReadPiece(now, e.Piece, e.End)
		s.showPiece()
		if !pass && !e.End {
			return
		}
		if e.End {
			e.Metadata = stream.Metadata(r.Response.Metadata())
		}
		fx.Add(*e)
		return
	}
	out := r.Response.Read(now, e.Body, e.End)
	s.showPiece()
	if s.modes.Response != stream.FullDuplex { // one reply to each message
		e.Replace = !bytes.Equal(out, e.Body)
	} else if out == nil && !e.End && len(e.Body) > 0 {
		return // held back
	}
	e.Body = out
	if e.End {
		e.Metadata = stream.Metadata(r.Response.Metadata())
	}
	s.pieces(e, fx)
}

// TakesPieces reports whether the answer may come as described pieces: nothing here reads its bytes except for the
// usage, or logs their number.
func (s *Stream) TakesPieces() bool {
	return s.m.log == nil && !s.m.hooks.ResponseChunks && s.modes == stream.Modes{} && s.r != nil &&
		s.r.Request != nil &&
		s.r.Body != nil && s.r.Body.Parser == parse.TypeOpenAI
}

// showPiece shows the plug-ins the last piece, during the Machine's turn. Without a hook for it, the piece concerns
// only its request.
func (s *Stream) showPiece() {
	if s.m.hooks.ResponseBody && s.r.Response.Placed() {
		s.door.Input(Piece{s.r})
	}
}

// pieces emits a response's body in pieces that Envoy accepts.
func (s *Stream) pieces(e *stream.Effect, fx *machine.Effects[stream.Effect]) {
	if s.modes.Response == stream.FullDuplex {
		for len(e.Body) > stream.MaxChunkBytes {
			fx.Add(stream.Effect{At: e.At, Kind: e.Kind, Body: e.Body[:stream.MaxChunkBytes]})
			e.Body = e.Body[stream.MaxChunkBytes:]
		}
	}
	fx.Add(*e)
}

// flush emits what was held back of a response that ends without a last piece.
func (s *Stream) flush(now machine.Time, fx *machine.Effects[stream.Effect]) {
	r := s.r
	if r == nil || r.Response == nil {
		return
	}
	out, read := r.Response.Close()
	if read {
		s.showPiece()
	}
	if len(out) > 0 {
		s.pieces(&stream.Effect{At: now, Kind: stream.SendResponseBody, Body: out}, fx)
	}
}
