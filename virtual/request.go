package virtual

import (
	"cmp"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// request is one request on its way: a client's, or one of a sidecar's legs or of Envoy's attempts, which nobody but
// a model server sees as such.
type request struct {
	workload.Request
	clientSide
	pickerSide
	gatewaySide
	serverSide

	w      *world
	pool   *pool
	ways   ways    // its own; a leg's are the leg's
	memory *memory // that it and its parts are in; nil of a leg
	direct bool    // it was, up to its decision
	past   *past   // as it becomes one that takes every step
}

// pickerSide is Envoy's stream with the endpoint picker.
type pickerSide struct {
	picker   *picking // of the pool's
	stream   *epp.Stream
	fx       machine.Effects[stream.Effect] // of the stream
	slot     slot[*stream.Message, *machine.Effects[stream.Effect]]
	closed   bool // Envoy has ended the stream
	attended bool // the picker takes its time
	seen     seen
}

// gatewaySide is what the routes of manifests say, and what Envoy tries where their policies say so.
type gatewaySide struct {
	path     string      // that the server sees, "" for the client's own
	headers  header.List // that the server sees, nil for the client's own
	route    *gateway.Route
	asked    *modes
	answers  *stream.Answer // in place of a server's
	exchange *exchange      // what is tried
	try      *try           // of one attempt itself: where its answer goes
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
