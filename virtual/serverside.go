package virtual

import (
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/load/response"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// serverSide is the request behind Envoy.
type serverSide struct {
	sidecar *sidecarRequest // at the sidecar before a decode server
	leg     *leg            // of a leg itself: where its answer goes
	server  *server
	at      *answering // nil: at none, or at the sidecar before it
	tokens  int        // of the answer, as far as it has left
	whole   bool       // all of it has
	gone    bool       // it is known that nobody waits any more
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
