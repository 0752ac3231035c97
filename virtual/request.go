package virtual

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/held"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/core/workload"
)

// request is one request on its way: the client's side, the EPP's stream, and
// the model server's session.
type request struct {
	workload.Request
	w      *world
	stream *stream.Stream
	wakeAt machine.Time

	pick    *pick // at a picker with a configuration
	server  *server
	session *serving.Session
	reader  *held.Reader
	id      engine.RequestID
	asked   int

	passage *passage   // at the sidecar before a decode server
	subs    []*request // its legs
	leg     *leg       // of a leg itself: where its answer goes

	prompt []uint32 // as the model server tokenises it, once somebody asked

	payload int           // bytes that the model server has read
	fault   serving.Fault // what goes wrong there

	made   string // the metadata that the EPP made up
	status int
	first  bool // the client has seen the first token
	over   bool
	tokens int
	bytes  int
}

func (r *request) record(step flow.Step, details ...flow.Detail) {
	if r.w.rec != nil {
		r.w.rec.Record(flow.Event{Time: r.w.now, Request: r.ID, Hop: flow.Client, Step: step, Details: details})
	}
}

// begin sends the request: headers and body reach the EPP at once.
func (r *request) begin() {
	cfg := r.w.stream
	cfg.OnMetadata = func(_, metadata string) { r.made = metadata }
	r.stream = stream.New(cfg)
	r.asked = r.w.load.MaxTokens
	r.record(flow.RequestSent, flow.D("path", r.Path), flow.D("bytes", len(r.Body)))
	if r.w.timeout > 0 {
		r.w.queue.Push(r.w.now.Add(r.w.timeout), machine.ClassTimer, event{kind: giveUp, request: r})
	}
	head := []stream.Header{{Name: ":method", Value: "POST"}, {Name: ":path", Value: r.Path},
		{Name: "content-type", Value: "application/json"}, {Name: "x-request-id", Value: r.ID}}
	r.play(r.stream.Headers(r.w.now, stream.Modes{}, head, false))
	r.play(r.stream.Body(r.w.now, r.Body, true))
}

// play carries out what the EPP says.
func (r *request) play(effects []stream.Effect) {
	for _, e := range append([]stream.Effect(nil), effects...) {
		if r.over {
			return
		}
		switch e.Kind {
		case stream.Decide:
			if r.w.picking != nil {
				r.w.picking.decide(r, e.Head, e.Body)
			} else {
				r.decided(r.w.picker.Pick(e.Head, e.Body))
			}
		case stream.SendRequestHeaders:
			r.forward(e.Set)
		case stream.SendRequestBody:
			r.serverBody(e.Body, e.End)
		case stream.SendResponseBody:
			r.received(e.Body, e.End)
		case stream.SendAnswer:
			r.dropServer("the EPP answered by itself")
			r.finish(flow.OutcomeOfStatus(e.Answer.Status), flow.D("status", e.Answer.Status))
		}
	}
	r.schedule()
}

// promptTokens are the prompt's tokens, worked out once.
func (r *request) promptTokens() []uint32 {
	if r.prompt == nil {
		r.prompt = promptTokens(r.Body)
	}
	return r.prompt
}

// promptDetail is what a model server says of a request that it reads.
func (r *request) promptDetail() flow.Detail { return flow.D("prompt_tokens", len(r.promptTokens())) }

func (r *request) decided(d stream.Decision) { r.play(r.stream.Decided(r.w.now, d)) }

// evicted is flow control taking the request back while it runs.
func (r *request) evicted(a stream.Answer) { r.play(r.stream.Evict(r.w.now, a)) }

// schedule keeps the stream's deadline in the queue.
func (r *request) schedule() {
	if at, ok := r.stream.Next(); ok && at != r.wakeAt && !r.over {
		r.wakeAt = at
		r.w.queue.Push(at, machine.ClassTimer, event{kind: wakeStream, request: r})
	}
}

func (r *request) wake(at machine.Time) {
	if !r.over && at == r.wakeAt {
		r.play(r.stream.Advance(r.w.now))
	}
}

// giveUp is the client's own time limit.
func (r *request) giveUp() {
	if r.over {
		return
	}
	r.finish(flow.TimedOut, flow.D("reason", "the client's own time limit"))
	r.stream.PeerGone(r.w.now, "")
	r.dropServer("the client left")
}

// forward opens the request at the model server that the EPP chose.
func (r *request) forward(set []stream.Header) {
	contentType, prefillers := "application/json", ""
	for _, h := range set {
		switch h.Name {
		case "x-gateway-destination-endpoint":
			first, _, _ := strings.Cut(h.Value, ",") // the rest are fallbacks
			r.server = r.w.byAddr[first]
		case "content-type":
			contentType = h.Value
		case "x-prefiller-host-port":
			prefillers = h.Value
		}
	}
	if r.w.sidecar != nil {
		r.enter(r.server, prefillers)
		return
	}
	boundary, isHeld, _ := held.Boundary(contentType)
	if isHeld {
		r.reader = held.NewReader(boundary, max(r.w.stream.MaxBodyBytes, len(r.Body)))
	}
	r.session = serving.New(serving.Options{Request: r.ID, Attempt: 1, Endpoint: r.server.endpoint, Held: isHeld, Recorder: r.w.rec})
}

// serverBody is the request's body as the model server reads it.
func (r *request) serverBody(body []byte, end bool) {
	if r.passage != nil {
		if end {
			r.passage.play(r.passage.x.Start(r.w.now))
		}
		return
	}
	if r.reader == nil {
		r.bytes += len(body)
		if end {
			r.reached(r.bytes)
		}
		return
	}
	was := r.reader.PayloadDone()
	_, err := r.reader.Write(body)
	if err == nil && end {
		err = r.reader.Close()
	}
	switch {
	case err != nil:
		r.do(r.session.Violation(r.w.now, err.Error()))
	case !was && r.reader.PayloadDone():
		r.reached(len(r.reader.Payload()))
	case r.reader.Done():
		r.do(r.session.Part2(r.w.now, r.reader.Metadata()))
	}
}

// do carries out what the session says.
func (r *request) do(e serving.Effect) {
	if e.AbortEngine {
		r.server.input(engine.Abort{ID: r.id})
	}
	switch e.Do {
	case serving.Submit:
		r.server.submit(r)
	case serving.SendFirst:
		r.respond(200, []byte("data: "+r.firstToken()+"\n\n"), false)
	case serving.Resume:
		r.server.input(engine.Resume{ID: r.id})
	case serving.SendEnd:
		r.respond(200, []byte("data: "+e.Echo+"\n\ndata: [DONE]\n\n"), true)
	case serving.Refuse:
		r.respond(e.Status, []byte(e.Reason), true)
	case serving.SendError:
		r.status = 500
		r.respond(200, []byte(e.Reason), true)
	}
}

// firstToken is random, as the live server's is.
func (r *request) firstToken() string {
	d := machine.DrawFor(r.w.draws.Seed, "server", "token", r.ID)
	return d.Letters(5)
}

// respond is a piece of the response on its way to the EPP.
func (r *request) respond(status int, body []byte, end bool) {
	if r.leg != nil {
		r.leg.respond(status, body, end)
		return
	}
	if r.over {
		return
	}
	if r.status == 0 {
		r.status = status
		r.play(r.stream.ResponseHeaders(r.w.now, []stream.Header{{Name: ":status", Value: statusText(status)}}, false))
	}
	if !r.over {
		r.play(r.stream.ResponseBody(r.w.now, body, end))
	}
}

// received is a piece of the response at the client.
func (r *request) received(body []byte, end bool) {
	if r.pick != nil {
		r.w.picking.response(r.pick, statusText(r.status), body, end)
	}
	ok := r.status >= 200 && r.status < 300
	if ok && !r.first && len(body) > 0 {
		r.first = true
		r.record(flow.FirstTokenReceived, flow.D("status", r.status), flow.D("bytes", len(body)))
	}
	if !end {
		return
	}
	outcome := flow.OutcomeOfStatus(r.status)
	details := []flow.Detail{flow.D("status", r.status), flow.D("tokens", r.tokens)}
	if r.made != "" {
		details = append(details, flow.D("metadata", r.made))
		if r.reader.Metadata() != r.made {
			outcome = flow.Violated
		}
	}
	if outcome == flow.Completed {
		r.record(flow.LastTokenReceived, details...)
	}
	r.finish(outcome, details...)
}

func (r *request) dropServer(reason string) {
	if r.passage != nil {
		r.passage.leave(reason)
	}
	if r.session != nil && !r.session.Ended() {
		r.do(r.session.PeerGone(r.w.now, reason))
	}
}

func (r *request) finish(o flow.Outcome, details ...flow.Detail) {
	if r.over {
		return
	}
	r.over = true
	if r.pick != nil {
		r.w.picking.ended(r.pick)
	}
	r.record(flow.Finished, append([]flow.Detail{flow.D("outcome", string(o))}, details...)...)
	r.w.ended()
}
