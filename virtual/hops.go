package virtual

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/plan"
)

// hops is how long it takes to get from one part to the next. A message crosses
// all hops of its route in one event, and only what somebody decides about is a
// message: the first and the last of an answer, not each of its tokens.
type hops struct {
	seed uint64
	// Between client and picker, and between picker and what is behind Envoy, in
	// either direction. Envoy's own work on what passes is on the client's side.
	client, server route
	// first is client's for a request: of several pools its own is found on the way.
	first route
	// Past the picker, from the client to what is behind Envoy: nobody waits any
	// more.
	past route
	// Where policies of manifests act between the picker and what is behind Envoy: from
	// the picker to Envoy or back, and from there to a model server and back.
	asked, sent, answered route
	// Between a sidecar and its own pod's model server, and that of another pod.
	pod, pods route
	scrape    route
}

// route is what a message passes on its way.
type route struct {
	fixed  machine.Time // of the hops that always take as long
	varied []dist.Dist
}

func newHops(seed uint64, h *plan.Hops, routed bool) hops {
	first := []dist.Dist{h.Network, h.Envoy, h.ExtProc}
	if routed { // to the body-based router and back
		first = append(first, h.ExtProc, h.ExtProc)
	}
	return hops{seed: seed, first: newRoute(first...), client: newRoute(h.Network, h.Envoy, h.ExtProc),
		server: newRoute(h.ExtProc, h.Network),
		past:   newRoute(h.Network, h.Envoy, h.Network), asked: newRoute(h.ExtProc), sent: newRoute(h.Network),
		answered: newRoute(h.Network, h.Envoy), pod: newRoute(h.Sidecar), pods: newRoute(h.Sidecar, h.Network),
		scrape: newRoute(h.Scrape)}
}

// unasked are the hops of a pool whose requests no picker sees.
func (h *hops) unasked(of *plan.Hops, routed bool) *hops {
	x := *of
	x.ExtProc = dist.Dist{}
	own := newHops(h.seed, &x, false)
	if routed {
		own.first = newRoute(of.Network, of.Envoy, of.ExtProc, of.ExtProc)
	}
	return &own
}

func newRoute(list ...dist.Dist) route {
	var r route
	for _, d := range list {
		if d.IsConstant() {
			r.fixed += machine.Time(d.Quantile(0))
		} else {
			r.varied = append(r.varied, d)
		}
	}
	return r
}

// takes is how long the next message takes that this draw is for.
func (r *route) takes(d *machine.Draw) machine.Time {
	t := r.fixed
	for i := range r.varied {
		t = t.Add(r.varied[i].SampleTime(d))
	}
	return t
}

// longest is more than any message takes.
func (r *route) longest() machine.Time {
	t := r.fixed
	for i := range r.varied {
		t = t.Add(machine.Time(r.varied[i].Quantile(1)) + 1)
	}
	return t
}

// way is one direction between two parts, of one request. Nothing on it
// overtakes what went before.
type way struct {
	draw  machine.Draw
	busy  int          // messages under way
	until machine.Time // when the last of them arrives
}

// ways are those of one request, or of a leg of one.
type ways struct{ up, upBehind, downBehind, down way }

// scrapes is how long a scrape takes: the draws of each endpoint and data source
// are its own.
func (h *hops) scrapes(source, endpoint, endpoints int, number int64) machine.Time {
	d := machine.NewDraw(h.seed, "hops", "scrape",
		uint64(source)<<48|uint64((number-1)*int64(endpoints)+int64(endpoint)))
	return h.scrape.takes(&d)
}

// open begins a request's ways: the draws of each are its own, so that what
// passes one moves nothing on another.
func (h *hops) open(request string, leg int) ways {
	d := machine.DrawFor(h.seed, "hops", "request", request)
	at := func(n uint64) way { return way{draw: machine.NewDraw(d.Uint64(), "hops", "way", n+4*uint64(leg))} }
	return ways{at(0), at(1), at(2), at(3)}
}

// pass has a message arrive that leaves now.
func (w *world) pass(on *way, by *route, m message) {
	took := by.takes(&on.draw)
	under := takeFrom(&w.messages)
	m.on = on
	*under = m
	on.busy++
	if took == 0 && on.busy == 1 {
		w.arrive(under)
		return
	}
	on.until = max(on.until, w.now.Add(took))
	w.queue.Push(on.until, machine.ClassArrival, event{arrives, under})
}

// arrive is a message at its place.
func (w *world) arrive(m *message) {
	m.on.busy--
	m.do(m)
	*m = message{}
	w.messages = append(w.messages, m)
}

// takeFrom takes something from what can be used again, or makes it.
func takeFrom[T any](free *[]*T) *T {
	n := len(*free)
	if n == 0 {
		return new(T)
	}
	x := (*free)[n-1]
	*free = (*free)[:n-1]
	return x
}
