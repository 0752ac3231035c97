package virtual

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// cluster is Envoy between a pool's picker and its servers, if manifests have policies about it.
type cluster struct {
	slot[upstream.Message, *machine.Effects[upstream.Effect]]
	of     *pool
	m      *upstream.Cluster
	fx     machine.Effects[upstream.Effect]
	number uint64
	has    map[uint64]*exchange
	out    []string // ejected endpoints that pickers know
	known  []string // ejected endpoints
	probe  string   // the path of probes
	ejects bool
}

// exchange is a request at Envoy, between its picker and the attempts at servers.
type exchange struct {
	c      *cluster
	r      *request
	number uint64
	head   header.List
	parts  []part // of the body, for further attempts
	try    *try   // the attempt under way
}

type part struct {
	body      []byte
	described *described.Body
	end       bool
}

// try is an attempt: a request whose answer goes to Envoy.
type try struct {
	*exchange
	attempt int
	sub     *request
	ways    ways // between Envoy and server, up and down
	hasHead bool // Envoy has the head of the answer
	passes  bool
	over    bool
	kept    []answered // pieces of the answer, until Envoy passes or drops it
}

// answered is a piece of an answer.
type answered struct {
	status      int
	contentType string
	body        []byte
	piece       *described.Piece
	end         bool
}

// newCluster returns the pool's cluster, nil without policies.
func newCluster(x *pool) *cluster {
	if x.Upstream == nil {
		return nil
	}
	c := &cluster{of: x, has: map[uint64]*exchange{}}
	config := *x.Upstream
	config.Endpoints, config.Streams, config.Lost = x.serving(), 1, proxy.Ended(x.HTTP2)
	if x.HTTP2 {
		config.Streams = proxy.StreamsPerConnection
	}
	c.ejects = config.Health != nil || config.Limits != nil && config.Limits.Outlier != nil
	if config.Health != nil {
		c.probe = config.Health.Endpoint
	}
	c.m = upstream.New(config)
	c.class, c.while = machine.ClassTimer, x.w.busy // probes have no end
	c.open(x.w, c.m, &c.fx, func(i int) { c.do(c.fx.List[i]) })
	c.play()
	return c
}

// accept takes a request after the picker's decision, with the headers that the picker set.
func (c *cluster) accept(r *request, head, set header.List) {
	c.number++
	r.exchange = &exchange{c: c, r: r, number: c.number, head: head}
	c.has[c.number] = r.exchange
	var named []string
	if to := head.Get(picker.HeaderDestination); to != "" {
		named = strings.Split(to, ",")
	}
	var a gateway.Attempts
	if r.route != nil {
		a = r.route.Attempts().With(set)
	}
	c.input(upstream.RequestHeaders{Request: c.number, ID: r.ID, Attempts: a, Named: named})
}

// read takes a piece of the request's body.
func (x *exchange) read(body []byte, d *described.Body, end bool) {
	p := part{body, d, end}
	x.parts = append(x.parts, p)
	if x.try != nil && !x.try.over {
		x.try.send(p)
	}
	if end {
		x.c.input(upstream.Whole{Request: x.number})
	}
}

// leave ends the exchange: no client waits for the answer.
func (x *exchange) leave(string) {
	x.c.input(upstream.Left{Request: x.number})
	delete(x.c.has, x.number)
}

// do carries out an effect of the cluster.
func (c *cluster) do(e upstream.Effect) {
	switch e.Kind {
	case upstream.Out:
		c.known = e.Endpoints
		at := (c.w.now/look + 1) * look // the next look
		c.w.queue.Push(at, machine.ClassTimer, event{then, c.publishEjected})
		return
	case upstream.Probe:
		c.ask(e)
		return
	}
	x := c.has[e.Request]
	switch e.Kind {
	case upstream.Try:
		x.attempt(e.Attempt, c.of.byAddr[e.Endpoint])
	case upstream.Pass:
		x.try.pass()
	case upstream.Drop:
		x.try.drop()
	case upstream.Answered, upstream.Cut:
		delete(c.has, e.Request)
		x.r.instead(e.Answer)
	}
}

// look is the interval at which pickers learn which endpoints are ejected.
var look = machine.FromDuration(upstream.Look)

// publishEjected updates the endpoints of the pickers.
func (c *cluster) publishEjected() {
	if !slices.Equal(c.out, c.known) {
		c.out = c.known
		c.of.applyToPickers()
	}
}

// ask probes an endpoint.
func (c *cluster) ask(e upstream.Effect) {
	sv, way := c.of.byAddr[e.Endpoint], new(way)
	c.w.pass(way, &c.w.hops.sent, call(func() {
		p := upstream.Probed{Endpoint: e.Endpoint, Probe: e.Attempt, Answered: !sv.absent()}
		p.Well = p.Answered && sv.healthy(c.probe)
		c.w.pass(way, &c.w.hops.sent, call(func() { c.input(p) }))
	}))
}

// attempt starts an attempt at a server.
func (x *exchange) attempt(n int, at *server) {
	w := x.c.w
	t := &try{exchange: x, attempt: n, ways: w.hops.open(x.r.ID, tries+n)}
	t.sub = &request{Request: x.r.Request, w: w, pool: x.r.pool,
		gatewaySide: gatewaySide{path: x.r.path, route: x.r.route, try: t}, serverSide: serverSide{server: at}}
	x.try = t
	head := append(x.head[:len(x.head):len(x.head)],
		header.Header{Name: "x-envoy-attempt-count", Value: strconv.Itoa(n)})
	t.carry(&t.ways.up, &w.hops.sent, call(func() {
		if !t.sub.gone { // otherwise the client has left
			t.sub.arrive(at, head)
		}
	}))
	for _, p := range x.parts {
		t.send(p)
	}
}

// tries is above the numbers of a sidecar's legs, so that attempts have ways of their own.
const tries = 1 << 20

// carry sends a message between Envoy and the attempt's server.
func (t *try) carry(on *way, by *route, m message) { t.c.w.passLate(on, by, t.sub.server.lateBy(), m) }

func (t *try) send(p part) {
	w := t.c.w
	t.carry(&t.ways.up, &w.hops.sent,
		message{r: t.sub, do: (*message).serverBody, body: p.body, described: p.described, end: p.end})
}

// respond sends a piece of the answer to Envoy.
func (t *try) respond(a answered) {
	w := t.c.w
	t.carry(&t.ways.down, &w.hops.answered, call(func() { t.responded(a) }))
}

func (t *try) responded(a answered) {
	if t.over {
		return
	}
	if t.passes {
		t.deliver(a)
		return
	}
	t.kept = append(t.kept, a)
	if t.hasHead {
		return
	}
	t.hasHead = true
	h := upstream.Head{Request: t.number, Attempt: t.attempt, Status: a.status,
		End: a.end && len(a.body) == 0 && a.piece == nil}
	if c := t.sub.ended; c != nil && h.End {
		h.Code = int(c.code)
	}
	t.c.input(h)
}

// pass passes the answer on, from its beginning.
func (t *try) pass() {
	t.passes = true
	for _, a := range t.kept {
		t.deliver(a)
	}
	t.kept = nil
}

// deliver passes a piece of the answer on to the picker.
func (t *try) deliver(a answered) {
	r, s := t.r, t.sub
	r.tokens, r.whole, r.echo, r.ended, r.failed = s.tokens, s.whole, s.echo, s.ended, s.failed
	r.toEPP(message{do: (*message).responded, status: a.status, contentType: a.contentType, body: a.body,
		piece: a.piece, end: a.end})
	if a.end {
		t.over = true
		t.c.input(upstream.Ended{Request: t.number, Attempt: t.attempt})
		delete(t.c.has, t.number)
	}
}

// broke reports to Envoy that the connection of the attempt broke or was refused.
func (t *try) broke(refused bool) {
	w := t.c.w
	t.carry(&t.ways.down, &w.hops.answered, call(func() {
		if !t.over {
			t.over = true
			t.c.input(upstream.Broken{Request: t.number, Attempt: t.attempt, Refused: refused})
		}
	}))
}

// drop ends the attempt. If the client is gone, the server already knows.
func (t *try) drop() {
	const reason = "the client left"
	if t.over = true; t.r.gone {
		t.sub.gone = true
		t.sub.dropServer(reason)
		return
	}
	w := t.c.w
	t.carry(&t.ways.up, &w.hops.sent, message{r: t.sub, do: (*message).dropped, reason: reason})
}

// healthy reports whether a server answers a health check at path.
func (s *server) healthy(path string) bool {
	u, err := url.Parse(path)
	if err != nil {
		return false
	}
	return u.Path == "/metrics" || u.Path == "/health" && !s.core.Dead()
}
