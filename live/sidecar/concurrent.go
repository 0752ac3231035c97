package sidecar

import (
	"context"
	"net/http"

	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
)

// arrival is the result of a concurrent leg: an error, or an answer. The answer's body has been read already, unless
// the leg is a decode leg. stop ends the leg and any read of its body.
type arrival struct {
	leg  int
	kind disagg.LegKind
	resp *http.Response
	body []byte
	err  error
	stop context.CancelFunc
}

// launch sends a leg concurrently with the others.
func (e *clientRequest) launch(l disagg.Leg) {
	if e.flying == nil {
		e.flying, e.inbox = map[int]context.CancelFunc{}, make(chan arrival)
	}
	ctx, stop := context.WithCancel(e.ctx)
	e.flying[l.ID] = stop
	go func() {
		a := arrival{leg: l.ID, kind: l.Kind, stop: stop}
		a.resp, a.err = e.k.send(ctx, e, &l) //nolint:bodyclose // closed below, or by closeAnswer and recall
		if a.err == nil && l.Kind != disagg.Decode {
			a.body, a.err = readAll(a.resp.Body)
			_ = a.resp.Body.Close() // it has been read, or is broken
		}
		e.inbox <- a
	}()
}

// arrived passes the result of a concurrent leg to the machine.
func (e *clientRequest) arrived(a arrival) {
	delete(e.flying, a.leg)
	e.open = append(e.open, a.stop)
	if a.err != nil {
		e.failed(a.leg, a.err)
		return
	}
	e.keep(a.leg, a.resp)
	e.input(headOf(a.leg, a.resp))
	if a.kind != disagg.Decode {
		e.input(disagg.Whole{Leg: a.leg, Body: a.body})
	}
}

// recall ends the concurrent legs whose results are no longer needed.
func (e *clientRequest) recall() {
	for _, stop := range e.flying {
		stop()
	}
	for len(e.flying) > 0 {
		a := <-e.inbox // the leg ends at once
		delete(e.flying, a.leg)
		if a.err == nil {
			_ = a.resp.Body.Close() // its answer is not needed
		}
	}
	for _, stop := range e.open {
		stop()
	}
}
