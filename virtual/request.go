package virtual

import (
	"cmp"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// request is a client's request on its way, or a leg of a sidecar or an attempt of Envoy, which are requests only to a
// model server.
type request struct {
	workload.Request
	clientSide
	pickerSide
	gatewaySide
	serverSide

	w      *world
	pool   *pool
	ways   ways    // a leg uses leg.ways instead
	memory *memory // holds the request and its parts; nil for a leg
	direct bool    // it was direct until its decision
	past   *past   // not nil while a direct request becomes this one
}

// pickerSide is Envoy's stream with the endpoint picker.
type pickerSide struct {
	picker   *picking // assigned by Envoy
	stream   *epp.Stream
	fx       machine.Effects[stream.Effect] // of the stream
	slot     slot[*stream.Message, *machine.Effects[stream.Effect]]
	closed   bool // Envoy has ended the stream
	attended bool // the picker's service time is running
	seen     seen
}

// gatewaySide is the route of a request in manifests, and its attempts under their policies.
type gatewaySide struct {
	path     string      // at the server; "" is the client's
	headers  header.List // at the server; nil is the client's
	route    *gateway.Route
	asked    *modes
	answers  *stream.Answer // Envoy's own answer, or nil
	exchange *exchange      // nil without policies
	try      *try           // not nil for an attempt
}

// description returns the description of the body, or nil if there is a written body.
func (r *request) description() *described.Body {
	if !r.IsDescribed() {
		return nil
	}
	return &r.Described
}

// target returns the path at the server.
func (r *request) target() string {
	path, _, _ := strings.Cut(cmp.Or(r.path, r.Path), "?")
	return path
}

// client returns the client's request of a leg or an attempt, or the request itself.
func (r *request) client() *request {
	switch {
	case r.leg != nil:
		return r.leg.p.r.client()
	case r.try != nil:
		return r.try.r
	}
	return r
}

// toStream sends a message of Envoy to the EPP's stream.
func (r *request) toStream(m stream.Message) {
	if r.seen.alone {
		return
	}
	if m.Kind == stream.PeerGone {
		if r.closed = true; r.attended { // the decision is not needed, but takes its time
			r.picker.attended(r.stream.Request())
		}
		delete(r.picker.has, r) // a client may leave before its request reaches Envoy
	}
	r.w.msg = m // read before the next message is sent
	r.slot.input(&r.w.msg)
}

// do carries out an effect of the stream, unless Envoy has closed it.
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
		if r.modes().request == stream.Buffered { // one answer to headers and body
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

// toServer sends a message from the EPP to the servers.
func (r *request) toServer(m message) {
	by := &r.pool.hops.server
	if r.pool.cluster != nil {
		by = &r.pool.hops.asked
	}
	r.pass(&r.ways.upBehind, by, m)
}

// toEPP sends a message from the servers to the EPP, and toClient one from the EPP to the client.
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
	r.w.passLate(on, by, r.late(on, &m), m)
}

// late returns how much longer a message takes, because of incidents.
func (r *request) late(on *way, m *message) (by machine.Time) {
	if !r.w.troubled {
		return 0
	}
	if r.picker != nil && !r.seen.past {
		by = r.picker.late
	}
	if on == &r.ways.up || on == &r.ways.down {
		return by.Add(r.w.late)
	}
	to := r.server
	if to == nil && r.exchange == nil { // only headers name the server, and messages stay in order
		first, _, _ := strings.Cut(m.head.Get(picker.HeaderDestination), ",")
		to = r.pool.byAddr[first]
	}
	return by.Add(to.lateBy())
}

// drop aborts the request at the servers.
func (r *request) drop(by *route, reason string) {
	r.w.passLate(&r.ways.upBehind, by, r.server.lateBy(), message{r: r, do: (*message).dropped, reason: reason})
}

// promptTokens returns the prompt's tokens at the model server, or nil.
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

// decided follows the picker's decision.
func (r *request) decided() {
	r.stream.Decide(r.w.now, &r.fx)
	r.slot.play()
}

// evicted ends the request because flow control evicts it while it runs.
func (r *request) evicted() {
	r.stream.Evict(r.w.now, &r.fx)
	r.slot.play()
}
