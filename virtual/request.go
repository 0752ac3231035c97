package virtual

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/described"
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/response"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/core/workload"
)

// request is one request on its way: the client's side, the EPP's stream, and
// the model server's session.
type request struct {
	workload.Request
	w            *world
	pool         *pool
	picker       *picking // of the pool's
	conversation *workload.Conversation
	stream       *epp.Stream
	fx           machine.Effects[stream.Effect] // of the stream
	slot         slot[*stream.Message, *machine.Effects[stream.Effect]]
	closed       bool // Envoy has ended the stream
	attended     bool // the picker takes its time
	alarm        *alarm
	ways         ways // its own; a leg's are the leg's
	seen         seen
	memory       *memory // that it and its parts are in; nil of a leg
	direct       bool    // it was, up to its decision
	past         *past   // as it becomes one that takes every step

	sidecar *sidecarRequest // at the sidecar before a decode server
	leg     *leg            // of a leg itself: where its answer goes

	exchange *exchange // at Envoy, where policies say what is tried
	try      *try      // of one attempt itself: where its answer goes

	// What the routes of manifests say: the path and the headers that the server sees,
	// "" and nil for the client's own, or an answer.
	path    string
	headers header.List
	route   *gateway.Route
	asked   *modes
	answers *stream.Answer

	// At the model server.
	server *server
	at     *answering // nil: at none, or at the sidecar before it
	tokens int        // of the answer, as far as it has left
	whole  bool       // all of it has

	// At the client.
	ended   *callStatus // of a call by gRPC
	echo    string      // the metadata that came back
	status  int
	bare    bool             // the response is its headers
	failed  *response.Error  // told inside the answer
	refusal *response.Reader // an answer with an error status
	first   bool             // the client has seen the first token
	over    bool
	gone    bool             // behind Envoy it is known that nobody waits any more
	heard   *response.Reader // the answer, where a sidecar may have put it together
	words   described.Text   // the answer, where somebody goes on from it
	said    string           // or this, where it is not words
}

func (r *request) record(step flow.Step, details ...flow.Detail) {
	if r.w.rec != nil {
		r.w.rec.Record(flow.Event{Time: r.w.now, Request: r.ID, Hop: flow.Client, Step: step, Details: details})
	}
}

// begin sends the request: headers and body reach the EPP together.
func (r *request) begin() {
	r.w.sent++
	r.stream = &r.memory.stream
	switch {
	case len(r.pool.pickers) == 0:
		*r.stream, r.seen.alone = epp.Stream{}, true
	case r.answers != nil:
		r.attach(r.pool.pickers[0], 0)
	case r.pool.Picker.Dies:
		r.assign(r.pool.pickers[0])
	default:
		r.assign(r.pool.picker())
	}
	if r.w.brief {
		r.record(flow.RequestSent, r.Told()...)
	} else {
		r.record(flow.RequestSent, r.Sent()...)
	}
	r.ways = r.w.hops.open(r.ID, 0)
	r.slot.open(r.w, r.stream, &r.fx, r.slot.carry)
	// Who leaves has left before others arrive at the same moment, and after the
	// step that ends then: what it brought was in time.
	after, leaves := r.w.load.Leaves(r.Index)
	if leaves || r.w.timeout > 0 {
		r.alarm = &alarm{r}
	}
	if r.w.timeout > 0 {
		r.w.limits.add(r.w, deadline{at: r.w.now.Add(r.w.timeout), alarm: r.alarm})
	}
	if leaves {
		r.w.queue.Push(r.w.now.Add(after), machine.ClassAbort, event{leave, r.alarm})
	}
	head := r.head().Normalize()
	r.w.pass(&r.ways.up, &r.pool.hops.first, message{r: r, do: (*message).begun, head: head})
}

// description is what the body is described by; nil where there is the body.
func (r *request) description() *described.Body {
	if !r.IsDescribed() {
		return nil
	}
	return &r.Described
}

// target is the path that the server sees.
func (r *request) target() string {
	path, _, _ := strings.Cut(cmp.Or(r.path, r.Path), "?")
	return path
}

// client is the client's request that this one, perhaps a leg or an attempt, is for.
func (r *request) client() *request {
	switch {
	case r.leg != nil:
		return r.leg.p.r.client()
	case r.try != nil:
		return r.try.r
	}
	return r
}

// head are the headers that the client sends.
func (r *request) head() header.List {
	h := make(header.List, 4, 5+len(r.Header))
	h[0], h[1] = header.Header{Name: ":method", Value: "POST"}, header.Header{Name: ":path", Value: r.Path}
	h[2], h[3] = header.Header{Name: "content-type", Value: r.ContentType()},
		header.Header{Name: "x-request-id", Value: r.ID}
	switch {
	case r.GRPC:
		h = append(h, header.Header{Name: "te", Value: "trailers"})
	case !r.w.chunked:
		h = append(h, header.Header{Name: "content-length", Value: strconv.Itoa(r.Len())})
	}
	return append(h, r.Header...)
}

// tell gives the EPP's stream a message of Envoy's.
func (r *request) tell(m stream.Message) {
	if r.seen.alone {
		return
	}
	if m.Kind == stream.PeerGone {
		if r.closed = true; r.attended { // nobody waits for the decision any more; the time is taken all the same
			r.picker.attended(r.stream.Request())
		}
	}
	r.w.msg = m // which is read before anybody tells anything else
	r.slot.input(&r.w.msg)
}

// do carries out what the EPP says, as long as Envoy listens.
func (r *request) do(e *stream.Effect) {
	if r.closed {
		return
	}
	switch e.Kind {
	case stream.Decide:
		r.picker.decide(r)
	case stream.SendRequestHeaders:
		r.seen.replied = true
		r.toServer(message{do: (*message).forward, head: e.Set})
		if !r.modes().sees() {
			r.toServer(message{do: (*message).serverBody, body: r.Body, described: r.description(), end: true})
		}
	case stream.SendRequestBody:
		if r.modes().request == stream.Buffered { // the answer to both
			r.seen.replied = true
			r.toServer(message{do: (*message).forward, head: e.Set})
		}
		r.toServer(message{do: (*message).serverBody, body: e.Body, described: e.Described, end: e.End})
	case stream.SendResponseHeaders:
		if r.bare {
			r.toClient(message{do: (*message).received, end: true})
		}
	case stream.SendResponseBody:
		r.toClient(message{do: (*message).received, body: e.Body, piece: e.Piece, end: e.End})
	case stream.PassResponseTrailers:
		r.toClient(message{do: (*message).received, end: true})
	case stream.SendAnswer:
		if r.seen.givenUp {
			return
		}
		answer := e.Answer
		r.drop(&r.pool.hops.server, "the EPP answered by itself")
		r.toClient(message{do: (*message).answered, answer: &answer})
	}
}

// answered is the EPP's own answer at the client.
func (r *request) answered(a stream.Answer) {
	switch {
	case r.status == 0 && r.GRPC:
		r.status, r.ended = 200, &callStatus{vllmgrpc.EnvoyCodeOf(a.Status), string(a.Body)}
		r.received(nil, nil, true)
		return
	case r.status == 0:
		r.status = a.Status
		r.received(a.Body, nil, true)
		return
	}
	r.finish(flow.OutcomeOfStatus(a.Status), []flow.Detail{flow.D("status", a.Status)})
}

// toServer is what the EPP sends to what is behind Envoy.
func (r *request) toServer(m message) {
	by := &r.pool.hops.server
	if r.pool.cluster != nil {
		by = &r.pool.hops.asked
	}
	r.pass(&r.ways.upBehind, by, m)
}

// toEPP is what comes from behind Envoy, and toClient what the EPP lets pass.
func (r *request) toEPP(m message) {
	by := &r.pool.hops.client
	if r.exchange != nil {
		by = &r.pool.hops.asked
	}
	r.pass(&r.ways.downBehind, by, m)
}

func (r *request) toClient(m message) {
	r.pass(&r.ways.down, &r.pool.hops.server, m)
}

func (r *request) pass(on *way, by *route, m message) {
	if m.r = r; r.past != nil {
		r.past.passes(on, m)
		return
	}
	r.w.pass(on, by, m)
}

// drop lets what is behind Envoy know that nobody waits any more.
func (r *request) drop(by *route, reason string) {
	r.w.pass(&r.ways.upBehind, by, message{r: r, do: (*message).dropped, reason: reason})
}

// promptTokens are the prompt's tokens as the model server counts them.
func (r *request) promptTokens() []uint32 {
	rd := modelserver.Reader{Config: r.pool.servers[0].reader.Config, State: onlooker{state{r.pool.servers[0]}}}
	api := modelserver.APIOf(r.target())
	if api == nil {
		return nil
	}
	q, bad := api.Read(&rd, &modelserver.Head{RequestID: r.ID}, r.Bytes())
	if bad != nil {
		return nil
	}
	return q.Prompts[0].Tokens
}

// decided is told of the picker's decision.
func (r *request) decided() {
	r.stream.Decide(r.w.now, &r.fx)
	r.slot.play()
}

// evicted is flow control taking the request back while it runs.
func (r *request) evicted() {
	r.stream.Evict(r.w.now, &r.fx)
	r.slot.play()
}

// giveUp is the client's own time limit.
func (r *request) giveUp() {
	if !r.over {
		f := r.facts()
		r.finish(f.TimedOut())
		r.left()
	}
}

// leaves is the client going away on purpose.
func (r *request) leaves() {
	if !r.over {
		f := r.facts()
		r.finish(f.Left(response.ClientLeft))
		r.left()
	}
}

// left tells everybody that nobody waits for the answer any more.
func (r *request) left() {
	r.w.pass(&r.ways.up, &r.pool.hops.client, message{r: r, do: (*message).left})
	r.drop(&r.pool.hops.past, "the client left")
}

// forward opens the request at the model server that the EPP chose.
func (r *request) forward(set header.List) {
	head := append(r.w.head[:0], header.Header{Name: "content-type", Value: r.ContentType()},
		header.Header{Name: "x-request-id", Value: r.ID})
	if r.headers != nil {
		head = append(head[:0], r.headers...)
	} else {
		head = append(head, r.Header...)
	}
	head = append(head, set...)
	r.w.head = head // which is read before anything else is sent
	if x := r.pool.cluster; x != nil {
		x.begin(r, slices.Clone(head), set)
		return
	}
	first, _, _ := strings.Cut(head.Get(picker.HeaderDestination), ",") // the rest are fallbacks
	r.arrive(r.pool.byAddr[first], head)
}

// arrive opens the request at a model server, or at the sidecar before it.
func (r *request) arrive(at *server, head header.List) {
	if r.server = at; at.sidecar != nil && !at.absent() {
		r.enter(at, head)
		return
	}
	r.reach(at, at.endpoint, head)
}

// serverBody is the request's body as the model server reads it.
func (r *request) serverBody(body []byte, d *described.Body, end bool) {
	switch {
	case r.exchange != nil:
		r.exchange.read(body, d, end)
	case r.sidecar != nil:
		r.sidecar.read(body, d, end)
	case r.at != nil:
		r.at.read(body, d, end)
	}
}

// fail notes an error that is told inside a 2xx.
func (r *request) fail(e *response.Error) {
	r.failed = e
	if r.leg != nil {
		r.leg.p.r.fail(e)
	}
}

func (r *request) dropServer(reason string) {
	if r.exchange != nil {
		r.exchange.leave(reason)
	}
	if r.sidecar != nil {
		r.sidecar.leave(reason)
	}
	if r.at != nil {
		r.at.gone(reason)
	}
}

func (r *request) finish(o flow.Outcome, details []flow.Detail) {
	if r.over {
		return
	}
	if r.over = true; r.alarm != nil {
		r.alarm.r = nil
	}
	response.Finish(r.record, o, details)
	if r.pool.Picker.Dies && r.picker != nil {
		delete(r.picker.has, r)
	}
	if r.memory != nil {
		r.w.ending = append(r.w.ending, r)
	}
	r.w.ended(r, o)
}
