package stack

import (
	"context"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/roundrobin"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/live/epp"
)

// probeInterval is how often model servers are asked whether they are ready.
const probeInterval = 500 * time.Millisecond

// director is the picker of a pool without an EndpointPickerConfig: the ready
// endpoints in turn.
type director struct {
	mu     sync.Mutex
	picker *roundrobin.Picker
	prober *epp.Prober
}

func newDirector(errors stream.ErrorStyle, endpoints, names []string) *director {
	d := &director{picker: roundrobin.New(errors, endpoints, names)}
	d.mu.Lock() // the first probe may be over before the prober is known
	defer d.mu.Unlock()
	d.prober = epp.StartProber(endpoints, probeInterval, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.picker.Endpoints, d.picker.Names = nil, nil
		for _, i := range d.prober.Ready() {
			d.picker.Endpoints = append(d.picker.Endpoints, endpoints[i])
			d.picker.Names = append(d.picker.Names, names[i])
		}
	})
	return d
}

// Decide picks the next endpoint; it never waits.
func (d *director) Decide(_ context.Context, r *epp.Request) (stream.Decision, epp.Exchange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.picker.Pick(r.Head, r.Body), nil
}
