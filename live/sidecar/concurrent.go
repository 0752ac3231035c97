package sidecar

import (
	"context"
	"net/http"

	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
)

// arrival is what a concurrent leg has brought: an answer, whose body is read
// already unless it is a decode leg's, or an error. stop ends the leg, and with
// it what is still to be read.
type arrival struct {
	leg  int
	kind disagg.LegKind
	resp *http.Response
	body []byte
	err  error
	stop context.CancelFunc
}

// launch sends a leg beside the others.
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
			_ = a.resp.Body.Close() // it is read, or broken
		}
		e.inbox <- a
	}()
}

// arrived tells the machine what a concurrent leg has brought.
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

// recall ends the concurrent legs that nobody waits for any more.
func (e *clientRequest) recall() {
	for _, stop := range e.flying {
		stop()
	}
	for len(e.flying) > 0 {
		a := <-e.inbox // it ends at once
		delete(e.flying, a.leg)
		if a.err == nil {
			_ = a.resp.Body.Close() // nobody reads it
		}
	}
	for _, stop := range e.open {
		stop()
	}
}
