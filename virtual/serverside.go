package virtual

import (
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/load/response"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// serverSide is the state of a request behind Envoy.
type serverSide struct {
	sidecar *sidecarRequest // nil without a sidecar
	leg     *leg            // not nil for a leg
	server  *server
	at      *answering // nil before it reaches a model server
	tokens  int        // of the answer so far
	whole   bool       // the whole answer was sent
	gone    bool       // the client or Envoy has aborted the request
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
	r.w.head = head // read before the next request is sent
	if x := r.pool.cluster; x != nil {
		x.accept(r, slices.Clone(head), set)
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

// serverBody takes a piece of the request's body.
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

// fail notes an error inside a 2xx.
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
