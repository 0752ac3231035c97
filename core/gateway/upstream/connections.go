package upstream

import (
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/machine"
)

// connect starts the attempt on a free connection to the endpoint, or on a new one. Where the limits allow no new one,
// the attempt waits.
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

// free reports whether a connection to the endpoint can take one more request.
func (x *Cluster) free(h *host) bool { return h.streams < h.connections*x.c.Streams }

// serve gives waiting attempts the connections that exist, or that the limits allow. Every endpoint may have at least
// one.
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

// attach sends the attempt on a connection.
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

// release removes an attempt from its connection. An HTTP/1 connection is then closed, unless keep is true.
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
