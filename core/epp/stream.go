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

// Stream is one ext_proc stream at the picker: core/epp/stream with what the picker
// reads of the request, changes in it, and does with the response. It is a
// machine.Machine[*stream.Message, *machine.Effects[stream.Effect]].
//
// Its effects are core/epp/stream's. At Decide the driver hands Request to the
// Machine (Arrive) and goes on with Decide when that says Decided; the rest goes
// to Envoy.
type Stream struct {
	// Over, if not nil, is called when the stream is over, before the Machine
	// takes back what the request held.
	Over func()
	// Response is memory for what is known of the response, used by nobody else
	// any more; nil takes new memory.
	Response *picker.Response

	m       *Machine
	door    Door
	inner   stream.Stream
	fx      machine.Effects[stream.Effect]
	room    [3]stream.Effect // for fx, which rarely holds more
	told    stream.Message   // the stream's own messages to inner
	modes   stream.Modes
	r       *Request
	adopted *Request // that was decided before
	subset  []string
	hinted  bool // there was a subset hint
	number  uint64
	arrived bool // the Machine has been told of the request, or is about to be
	decided bool // the Machine's word has been taken
	settled bool
	head    header.List
	served  picker.Served
}

// NewStream begins a stream. number makes the id of a request that came without
// one.
func NewStream(m *Machine, door Door, number uint64) *Stream {
	s := new(Stream)
	s.Init(m, door, number)
	return s
}

// Init makes s what NewStream begins, in memory that is there.
func (s *Stream) Init(m *Machine, door Door, number uint64) {
	*s = Stream{m: m, door: door, inner: *stream.New(m.c.Stream), number: number}
	s.fx.List = s.room[:0]
}

// Request returns what the Machine knows of it; nil before Decide, and where the
// body could not be read.
func (s *Stream) Request() *Request { return s.r }

// Result reports how the stream ended, or stream.Running.
func (s *Stream) Result() stream.Result { return s.inner.Result() }

// RequestID returns the request's x-request-id, empty before the headers.
func (s *Stream) RequestID() string { return s.inner.RequestID() }

// Holding is true while part 1 is out and part 2 is not.
func (s *Stream) Holding() bool { return s.inner.Holding() }

// Metadata returns what was made up for a held request, "" before part 2.
func (s *Stream) Metadata() string { return s.inner.Metadata() }

// Subset notes the endpoints that the data plane wants the choice to be made
// of: metadata envoy.lb.subset_hint, of the newest body message that had any.
func (s *Stream) Subset(addresses []string, hinted bool) { s.subset, s.hinted = addresses, hinted }

// Served notes what the data plane says about who answered, before the
// response's headers.
func (s *Stream) Served(x picker.Served) { s.served = x }

// Next is when the stream wants to be advanced.
func (s *Stream) Next() (machine.Time, bool) { return s.inner.Next() }

// Advance plays the deadline if it has passed by now.
func (s *Stream) Advance(now machine.Time, fx *machine.Effects[stream.Effect]) {
	s.inner.Advance(now, &s.fx)
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
			s.door.Input(Leave{s.r}) // what that decides ends the stream
			return
		}
	}
	s.inner.Input(now, msg, &s.fx)
	s.play(now, fx)
}

// Decide goes on with what the Machine has decided.
func (s *Stream) Decide(now machine.Time, fx *machine.Effects[stream.Effect]) {
	if s.Result() == stream.Running {
		s.told.Decision = s.decision()
	}
	s.decided = true
	s.tell(now, stream.Decided)
	s.play(now, fx)
}

// Evict ends the request, because flow control wants its room back.
func (s *Stream) Evict(now machine.Time, fx *machine.Effects[stream.Effect]) {
	s.told.Answer = s.m.c.Stream.Errors.Answer(flowcontrol.Evicted())
	s.tell(now, stream.Evicted)
	s.play(now, fx)
}

// Fail ends the stream with an error of the picker's own, and whatever was about
// to be done.
func (s *Stream) Fail(now machine.Time, reason string, fx *machine.Effects[stream.Effect]) {
	s.fx.Reset()
	s.told.Reason = reason
	s.tell(now, stream.Broken)
	s.play(now, fx)
}

// tell gives inner the stream's own message, which has all but its kind.
func (s *Stream) tell(now machine.Time, kind stream.MessageKind) {
	s.told.Kind = kind
	s.inner.Input(now, &s.told, &s.fx)
	s.told = stream.Message{}
}

// play adds what the picker has to say to the inner stream's effects and hands
// them out.
func (s *Stream) play(now machine.Time, fx *machine.Effects[stream.Effect]) {
	for i := 0; i < len(s.fx.List); i++ {
		e, passed := &s.fx.List[i], true
		switch e.Kind {
		case stream.Decide:
			if passed = s.read(e); !passed {
				s.told.Decision = s.refusal()
				s.tell(now, stream.Decided)
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
		// a plug-in panicked over the response
		if r := s.r; r != nil && r.Err != nil && s.decided && s.Result() == stream.Running {
			r.Told = true
			s.told.Reason = r.Err.Message
			s.tell(now, stream.Broken)
		}
	}
	s.fx.Reset()
	s.settle()
}

// settle says Done, once the stream is over.
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

// read parses the request; it is false where that cannot be done.
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

// decision returns the Machine's word as core/epp/stream takes it.
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
				Value: ids.Next(r.Headers.Get(tracing.Header), s.inner.RequestID(), tracing.Gateway(1))})
	}
	if !s.m.c.RecordOnly {
		out.Metadata = s.metadata(out.Endpoint)
	}
	if s.m.c.Stream.Recorder != nil && !s.m.c.Stream.Brief {
		out.Details = d.Recorded(s.m.c.Explain)
	}
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

// metadata returns the dynamic metadata that goes with the request's headers.
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
	s.r.Told = true
	a := s.m.c.Stream.Errors.Answer(e)
	return stream.Decision{Answer: &a, Reason: e.Code() + ": " + e.Message}
}

// responseHeaders lets the plug-ins see the response's headers and say which to
// set. A response to a request that nobody decided is Envoy's own, or that of a
// server that nobody chose.
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

// responseBody lets the plug-ins see a piece of the response, which may be held
// back, or become a longer one.
func (s *Stream) responseBody(now machine.Time, e *stream.Effect, fx *machine.Effects[stream.Effect]) {
	r := s.r
	if r == nil || r.Response == nil {
		fx.Add(*e)
		return
	}
	if e.Piece != nil {
		pass := r.Response.ReadPiece(now, e.Piece, e.End)
		s.tellPiece()
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
	s.tellPiece()
	if s.modes.Response != stream.FullDuplex { // one answer for each message
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

// TakesPieces reports whether the answer may come in pieces that are described: nobody
// here looks at its bytes but for its usage, nor writes down how many there are.
func (s *Stream) TakesPieces() bool {
	return s.m.log == nil && !s.m.hooks.ResponseChunks && s.modes == stream.Modes{} && s.r != nil &&
		s.r.Request != nil &&
		s.r.Body != nil && s.r.Body.Parser == parse.TypeOpenAI
}

// tellPiece has the plug-ins look at what was read last, in the Machine's turn.
// Where none has a hook for it, it concerns nothing but its request.
func (s *Stream) tellPiece() {
	if s.m.hooks.ResponseBody && s.r.Response.Placed() {
		s.door.Input(Piece{s.r})
	}
}

// pieces hands out a response's body in pieces that Envoy takes.
func (s *Stream) pieces(e *stream.Effect, fx *machine.Effects[stream.Effect]) {
	if s.modes.Response == stream.FullDuplex {
		for len(e.Body) > stream.MaxChunkBytes {
			fx.Add(stream.Effect{At: e.At, Kind: e.Kind, Body: e.Body[:stream.MaxChunkBytes]})
			e.Body = e.Body[stream.MaxChunkBytes:]
		}
	}
	fx.Add(*e)
}

// flush hands out what was held back of a response that ends without a last
// piece.
func (s *Stream) flush(now machine.Time, fx *machine.Effects[stream.Effect]) {
	r := s.r
	if r == nil || r.Response == nil {
		return
	}
	out, news := r.Response.Close()
	if news {
		s.tellPiece()
	}
	if len(out) > 0 {
		s.pieces(&stream.Effect{At: now, Kind: stream.SendResponseBody, Body: out}, fx)
	}
}
