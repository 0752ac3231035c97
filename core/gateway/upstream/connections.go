package upstream

import (
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/machine"
)

// connect has the attempt go over a connection of the endpoint's that is free, or a new
// one; where there may be no more it waits for one.
func (x *Cluster) connect(e *exchange, h *host) {
	if x.free(h) {
		x.attach(e, h)
		return
	}
	if !below(x.pending, x.c.Limits.Pending) {
		x.lose(e, false, proxy.Overflow)
		return
	}
	x.pending++
	e.host, e.waits = h, true
	h.waiting = append(h.waiting, e)
	x.serve(h)
}

// free says whether a connection of the endpoint's takes one more request.
func (x *Cluster) free(h *host) bool { return h.streams < h.connections*x.c.Streams }

// serve gives those that wait the connections that there are, or may be. An endpoint
// has one in any case.
func (x *Cluster) serve(h *host) {
	for len(h.waiting) > 0 {
		if !x.free(h) {
			if !below(x.connections, x.c.Limits.Connections) && h.connections > 0 {
				return
			}
			h.connections++
			if !h.gone {
				x.connections++
			}
		}
		e := h.waiting[0]
		h.waiting = h.waiting[1:]
		x.pending--
		e.host, e.waits = nil, false
		x.attach(e, h)
	}
}

// attach sends the attempt.
func (x *Cluster) attach(e *exchange, h *host) {
	if !below(x.requests, x.c.Limits.Requests) {
		x.lose(e, false, proxy.Overflow)
		return
	}
	x.requests++
	h.streams++
	if e.host = h; e.sent {
		x.limit(e)
	}
	x.rearm(e)
	x.say(Effect{Kind: Try, Request: e.number, Attempt: e.attempt, Endpoint: h.endpoint})
}

// release takes an attempt off its connection. With HTTP/1 that is closed unless it may be kept.
func (x *Cluster) release(e *exchange, keep bool) {
	h := e.host
	e.host, e.until = nil, machine.Never
	x.requests--
	h.streams--
	if !keep && x.c.Streams == 1 {
		h.connections--
		if !h.gone {
			x.connections--
		}
	}
	x.serve(h)
}
