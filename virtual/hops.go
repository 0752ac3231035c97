package virtual

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/plan"
)

// hops are the times between parts. A message crosses all hops of its route in one event. Only pieces that a part
// handles are messages: the first and the last of an answer, not each of its tokens.
type hops struct {
	seed uint64
	// Between client and picker, and between picker and the servers, in either direction. client includes Envoy's own
	// work.
	client, server route
	// first is client for a request, and includes the body-based router.
	first route
	// past is from the client to the servers without the picker, for aborted requests.
	past route
	// With policies of manifests: between picker and Envoy, from Envoy to a model server, and back.
	asked, sent, answered route
	// Between a sidecar and its own pod's model server, and another pod's.
	pod, pods route
	scrape    route
}

// route is a sequence of hops.
type route struct {
	fixed  machine.Time // the sum of the constant hops
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

// unasked returns the hops of a pool without a picker.
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

// takes returns the time of the next message.
func (r *route) takes(d *machine.Draw) machine.Time {
	t := r.fixed
	for i := range r.varied {
		t = t.Add(r.varied[i].SampleTime(d))
	}
	return t
}

// longest returns a bound of the times of all messages.
func (r *route) longest() machine.Time {
	t := r.fixed
	for i := range r.varied {
		t = t.Add(machine.Time(r.varied[i].Quantile(1)) + 1)
	}
	return t
}

// way is one direction between two parts, for one request. Messages on it stay in order.
type way struct {
	draw  machine.Draw
	busy  int          // messages under way
	until machine.Time // when the last of them arrives
}

// ways are the ways of a request, or of a leg or an attempt.
type ways struct{ up, upBehind, downBehind, down way }

// scrapes returns how long a scrape takes. Each endpoint and data source has its own draws.
func (h *hops) scrapes(source, endpoint, endpoints int, number int64) machine.Time {
	d := machine.NewDraw(h.seed, "hops", "scrape",
		uint64(source)<<48|uint64((number-1)*int64(endpoints)+int64(endpoint)))
	return h.scrape.takes(&d)
}

// open returns a request's ways. Each has its own draws, so that messages on one do not change the times on another.
func (h *hops) open(request string, leg int) ways {
	d := machine.DrawFor(h.seed, "hops", "request", request)
	at := func(n uint64) way { return way{draw: machine.NewDraw(d.Uint64(), "hops", "way", n+4*uint64(leg))} }
	return ways{at(0), at(1), at(2), at(3)}
}

// pass sends a message now. It arrives after the time of the route.
func (w *world) pass(on *way, by *route, m message) { w.passLate(on, by, 0, m) }

// passLate is pass over connections on which an incident makes each message late.
func (w *world) passLate(on *way, by *route, late machine.Time, m message) {
	took := by.takes(&on.draw).Add(late)
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

// arrive handles a message on arrival.
func (w *world) arrive(m *message) {
	m.on.busy--
	m.do(m)
	*m = message{}
	w.messages = append(w.messages, m)
}

// takeFrom takes a value from the free ones, or makes one.
func takeFrom[T any](free *[]*T) *T {
	n := len(*free)
	if n == 0 {
		return new(T)
	}
	x := (*free)[n-1]
	*free = (*free)[:n-1]
	return x
}
