package virtual

import (
	"cmp"
	"net/netip"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/load/response"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// answering is a request, or a leg of one, at its model server: a Response driven by the event queue.
type answering struct {
	slot[*modelserver.Progress, *modelserver.Effects]

	r         *request
	s         *server
	api       *modelserver.API
	head      modelserver.Head
	resp      modelserver.Response
	fx        modelserver.Effects
	p         modelserver.Progress
	reader    *held.Reader // of a held request
	room      modelserver.Memory
	body      []byte // the received part, of a plain request
	described *described.Body
	updated   bool // server.notify will report the engine's progress

	// one is memory for the parts that nearly every request needs.
	one struct {
		choice   [1]modelserver.Choice
		sequence sequence
		effects  [2]modelserver.Effect // for fx: requests rarely have more at once
		pieces   [2]described.Piece    // the first and the last of the answer
		used     int                   // of them
	}
}

// sequence is one completion of a request.
type sequence struct {
	*modelserver.Sequence
	at *answering
}

// reach starts a request at a model server, with its headers.
func (r *request) reach(s *server, endpoint string, head header.List) {
	switch {
	case s.absent() && r.try != nil: // connection refused
		r.try.broke(true)
		return
	case s.absent():
		r.cut(false)
		return
	}
	if bad := s.core.Refuses(r.w.now); bad != nil && r.GRPC {
		r.endCall(bad, nil)
		return
	} else if bad != nil {
		r.respond(bad.Status, jsonType, openai.AppendError(nil, bad), true)
		return
	}
	a := r.newAnswering()
	s.serves(a)
	a.s, a.api, a.head = s, modelserver.APIOf(r.target()), modelserver.ReadHead(head.Get)
	a.fx.List = a.one.effects[:0]
	a.open(r.w, &a.resp, &a.fx, a.carry)
	a.head.Created, a.head.Scratch, a.head.Memory = int64(r.w.now.Seconds()), &r.w.chat, &a.room
	a.api = cmp.Or(a.api, modelserver.Chat)
	fault, bad := s.reader.Fault(&a.head)
	boundary, isHeld, violation := held.Boundary(head.Get("content-type"))
	if isHeld {
		a.reader = held.NewReader(boundary, max(r.pool.Picker.MaxBodyBytes, r.Len()))
	}
	a.resp.Init(&s.reader, &modelserver.ResponseOptions{Head: &a.head, API: a.api, Fault: fault, Endpoint: endpoint,
		Held: isHeld, Recorder: r.w.rec,
		Brief: true, Silent: !r.pool.verbose && !r.GRPC}) // gRPC messages carry every token
	switch {
	case bad != nil:
		a.resp.Take(r.w.now, nil, bad, &a.fx)
	case violation != nil:
		a.resp.Open(r.w.now, violation.Error(), &a.fx)
	}
}

// read takes a piece of the request's body. A description is the whole body.
func (a *answering) read(body []byte, d *described.Body, end bool) {
	if d != nil {
		a.described = d
	}
	switch {
	case a.resp.Over():
	case a.reader == nil:
		if a.body == nil {
			a.body = body
		} else {
			a.body = append(a.body[:len(a.body):len(a.body)], body...)
		}
		if end {
			a.whole()
		}
	default:
		was := a.reader.PayloadDone()
		_, err := a.reader.Write(body)
		if err == nil && end {
			err = a.reader.Close()
		}
		switch {
		case err != nil:
			a.p.Violation = err.Error()
			a.input(&a.p)
		case !was && a.reader.PayloadDone():
			a.body = a.reader.Payload()
			a.whole()
		}
		if !a.resp.Over() && a.reader.Part2Begun() {
			a.p.Part2Begun, a.p.Part2 = true, a.reader.Done()
			if a.p.Part2 {
				a.p.Metadata = a.reader.Metadata()
			}
			a.input(&a.p)
		}
	}
}

// whole opens the request once its body is complete.
func (a *answering) whole() {
	bytes := len(a.body)
	if a.described != nil {
		bytes = a.described.Len()
	}
	a.resp.Open(a.r.w.now, "", &a.fx)
	if !a.resp.Over() {
		a.resp.Body(a.r.w.now, bytes, &a.fx)
	}
	a.play()
}

// gone ends the request at the server: no client waits for the answer.
func (a *answering) gone(reason string) {
	a.p.Gone = reason
	a.input(&a.p)
}

// do carries out an effect of the Response.
func (a *answering) do(e *modelserver.Effect) {
	r := a.r
	switch e.Kind {
	case modelserver.ReadBody:
		var q *modelserver.Request
		var bad *openai.Error
		if a.described != nil {
			q, bad = a.s.reader.ReadDescribed(a.api, &a.head, a.described)
		} else {
			q, bad = a.api.Read(&a.s.reader, &a.head, a.body)
		}
		if a.body = nil; bad == nil {
			if a.p.Choices = a.one.choice[:]; q.Choices() != 1 {
				a.p.Choices = make([]modelserver.Choice, q.Choices())
			}
		}
		a.resp.Take(r.w.now, q, bad, &a.fx)
	case modelserver.Submit:
		all := a.resp.Sequences()
		for i := range all {
			x := &a.one.sequence
			if i > 0 {
				x = new(sequence)
			}
			*x = sequence{&all[i], a}
			all[i].Owner = x
		}
		if past := r.client().past; past != nil { // the engine already has the direct request
			a.s.core.Replace(past.of(r), &all[0].Sequence)
			return
		}
		a.each(func(q *enginecore.Sequence) enginecore.Message { return enginecore.Submit{Sequence: q} })
	case modelserver.Resume:
		a.each(func(q *enginecore.Sequence) enginecore.Message { return enginecore.Resume{Sequence: q} })
	case modelserver.Abort:
		a.each(func(q *enginecore.Sequence) enginecore.Message { return enginecore.Abort{Sequence: q} })
	case modelserver.Bodyless, modelserver.Refuse:
		a.refuse(e)
	case modelserver.Cut:
		r.cut(e.Reset)
	case modelserver.BeginAnswer, modelserver.Tokens, modelserver.Fail, modelserver.End:
		if e.Kind == modelserver.Fail && !r.GRPC {
			r.fail(&response.Error{Type: e.Error.Type, Message: e.Error.Message})
		}
		end := e.Kind == modelserver.Fail || e.Kind == modelserver.End
		if e.Kind == modelserver.End {
			r.whole, r.echo = true, e.Echo
			if c := r.client(); c.conversation.More() && !r.pool.verbose &&
				(r.leg == nil || r.leg.Kind == disagg.Decode) {
				c.words, c.said = a.resp.Said()
			}
		}
		r.tokens = a.tokens()
		if c := r.client(); a.described != nil && !r.pool.verbose && (c.seen.alone || c.stream.TakesPieces()) &&
			(r.leg == nil || r.leg.p.x.PassesAnswer(r.leg.ID)) {
			if piece, ok := a.resp.Describe(e); ok {
				r.answer(200, a.resp.Request().Encoder.ContentType(), nil, a.keep(piece), end)
				return
			}
		}
		if b := a.resp.Append(nil, e); r.GRPC && end {
			r.endCall(e.Error, b)
		} else if len(b) > 0 || end {
			r.respond(200, a.resp.Request().Encoder.ContentType(), b, end)
		}
	}
}

// refuse answers instead of the engine.
func (a *answering) refuse(e *modelserver.Effect) {
	r := a.r
	switch {
	case r.GRPC && e.Kind == modelserver.Bodyless && e.Status != 200:
		r.endCall(&openai.Error{Status: e.Status, Message: vllmgrpc.HTTPMessage(e.Status)}, nil)
	case r.GRPC:
		r.endCall(e.Error, nil)
	case e.Kind == modelserver.Bodyless:
		r.respond(e.Status, jsonType, nil, true)
	default:
		r.respond(e.Error.Status, jsonType, a.resp.Append(nil, e), true)
	}
}

const jsonType = "application/json"

// tokens returns the number of tokens of the answer so far.
func (a *answering) tokens() int {
	n := 0
	if a.api == modelserver.GRPCEmbed {
		return n // the engine's one token is not part of the answer
	}
	for i := range a.p.Choices {
		n += a.p.Choices[i].Tokens
	}
	return n
}

func (a *answering) each(message func(q *enginecore.Sequence) enginecore.Message) {
	all := a.resp.Sequences()
	for i := range all {
		a.s.input(message(&all[i].Sequence))
	}
}

// onlooker is a state that does not change when requests are read.
type onlooker struct{ state }

func (onlooker) Fetched(string) bool { return true }

// state implements modelserver.State for a server.
type state struct{ *server }

func (s state) Draws() *lifecycle.Draws { return &s.server.Server.Draws }

func (s state) Fault(request string) lifecycle.Fault { return s.pool.Faults.Of(request, s.Index) }

func (s state) Adapter(name string) (engine.AdapterID, bool) {
	id, ok := s.pool.adapters[name]
	return id, ok
}

func (s state) Own(a netip.Addr) bool { return s.pool.byHost[a.String()] != nil }

func (s state) MeetsAt(host string, port int) bool {
	return host == s.host() && port == link.BootstrapPort
}

func (s state) Fetched(handle string) bool {
	_, known := s.fetched.Get(handle)
	s.fetched.Add(handle, struct{}{})
	return known
}

func (s state) Shown([]modelserver.Media)           {}
func (s state) ImagePercent() int                   { return 0 }
func (s state) EncodingsAt() (string, int)          { return s.host(), s.pool.SideChannel }
func (s state) Stored() modelserver.Stored          { return s }
func (s state) Continue(string, []modelserver.Item) {}

// Virtual time keeps neither responses nor conversations, because no client asks for them again.
func (s state) Response(string) ([]openai.Message, bool)         { return nil, false }
func (s state) Conversation(string) ([]modelserver.Item, bool)   { return nil, false }
func (s state) KeepResponse(string, *modelserver.StoredResponse) {}
