package hops

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
)

// timedRequest makes a request's events with these lengths of the hops, in microseconds. at is the time so far.
type timedRequest struct {
	at                              int
	network, envoy, picker, sidecar int
	router                          int // takes so long to answer, where there is one
	events                          []record.Event
}

func (p *timedRequest) tell(hop record.Hop, step record.Step, details ...record.Detail) {
	p.events = append(p.events,
		record.Event{Time: machine.Time(p.at) * machine.Microsecond, Request: "r", Attempt: 1, Hop: hop, Step: step,
			Details: details})
}

// play records one request, with Envoy's log last.
func (p *timedRequest) play(held, stream, aside bool) []record.Event {
	p.at = 1000
	p.tell(record.Client, record.RequestSent)
	p.at += p.network
	start := p.at
	p.at += p.envoy/2 + p.router
	asked := p.at
	p.at += p.picker
	p.tell(record.EPP, record.RequestReceived)
	p.at += 4000 // in flow control
	p.tell(record.EPP, record.EndpointPicked)
	p.at += p.picker
	timeline := map[string]any{"picker_request": p.at - asked}
	p.at += p.envoy / 2
	timeline["upstream_begun"] = p.at - start
	if p.router > 0 {
		timeline["router_request"] = p.router
	}
	p.at += p.network
	if aside {
		p.tell(record.Sidecar, record.RequestReceived)
		p.at += 100
		p.tell(record.Server, record.RequestReceived, record.D("stream", stream)) // of the prefill leg
		p.at += 100
		p.tell(record.Server, record.FirstTokenSent)
		p.tell(record.Server, record.LastTokenSent)
		p.at += 3000
		p.tell(record.Sidecar, record.DecodeLegSent)
		p.at += p.sidecar
	}
	received := record.RequestReceived
	if held {
		received = record.Part1Received
	}
	p.tell(record.Server, received, record.D("stream", stream))
	p.at += 20_000
	p.tell(record.Server, record.FirstTokenSent)
	if !stream && !held {
		p.at += 50_000
		p.tell(record.Server, record.LastTokenSent)
	}
	if aside {
		p.at += p.sidecar
		p.tell(record.Sidecar, record.FirstTokenSeen)
	}
	p.at += p.network
	timeline["upstream_first"] = p.at - start
	p.at += p.envoy + 2*p.picker
	timeline["response_first"], timeline["picker_response"] = p.at-start, 2*p.picker
	p.at += p.network
	p.tell(record.Client, record.FirstTokenReceived)
	p.at += 100_000
	p.tell(record.Client, record.LastTokenReceived)
	p.at -= p.network
	timeline["response_last"] = p.at - start
	p.tell(record.Envoy, record.Logged, record.D("timeline_us", timeline))
	return p.events
}

// The meter finds the times of hops in the record for every kind of request, with Envoy's log before or after the
// client's end.
func TestHopsAreMeasured(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ held, stream, aside bool }{{false, true, false}, {true, true, false},
		{true, false, false}, {false, false, false}, {false, true, true}} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v %v", c, early), func(t *testing.T) {
				t.Parallel()
				m := NewMeter(100, strings.Clone)
				p := timedRequest{network: 110, envoy: 60, picker: 75, sidecar: 230}
				if c.held { // behind a body-based router
					p.router = 500
				}
				events := p.play(c.held, c.stream, c.aside)
				if n := len(events); early {
					events[n-2], events[n-1] = events[n-1], events[n-2]
				}
				for _, e := range events {
					m.Record(e)
				}
				want := &Times{Network: "110us", Envoy: "60us", ExtProc: "75us"}
				if c.aside {
					want.Sidecar = "230us"
				}
				if d := cmp.Diff(want, m.Times()); d != "" {
					t.Error(d)
				}
				if m.open.Len() > 0 {
					t.Error("the request is still remembered")
				}
			})
		}
	}
}

// Failed and retried requests are not measured.
func TestOtherHopsAreNotMeasured(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(e *record.Event){
		"failed": func(e *record.Event) {
			if e.Step == record.LastTokenReceived {
				e.Step = record.Finished
			}
		},
		"tried again": func(e *record.Event) {
			if e.Hop == record.Envoy {
				e.Attempt = 2
			}
		},
	} {
		m := NewMeter(100, strings.Clone)
		for _, e := range (&timedRequest{network: 110, envoy: 60, picker: 75}).play(false, true, false) {
			spoil(&e)
			m.Record(e)
		}
		if got := m.Times(); got != nil {
			t.Errorf("%s: measured %+v", name, got)
		}
	}
}

// The distribution has the measured median and spread, in the form of a scenario.
func TestHopsAreFitted(t *testing.T) {
	t.Parallel()
	m := NewMeter(100, strings.Clone)
	for i := range 1000 {
		m.Scraped(time.Duration(400+i%2) * time.Microsecond)
	}
	for i := range 100 {
		m.note(requestFromSidecar, machine.Time(100+i*2)*machine.Microsecond) // median 200, 90th percentile 280
	}
	want := &Times{Sidecar: "lognormal(205us, 55us)", Scrape: "lognormal(400us, 1us)"}
	if d := cmp.Diff(want, m.Times()); d != "" {
		t.Error(d)
	}
	var out bytes.Buffer
	if err := m.Times().Write(&out); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("hops: # as measured\n  sidecar: lognormal(205us, 55us)\n  scrape: lognormal(400us, 1us)\n",
		out.String()); d != "" {
		t.Error(d)
	}
}

// The times of a busy machine also give a distribution that a scenario accepts: none is longer than a minute.
func TestWildHops(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]time.Duration{{500 * time.Microsecond, time.Second}, {50 * time.Millisecond, time.Minute},
		{time.Microsecond, 2 * time.Microsecond}, {time.Second, 3 * time.Second}} {
		m := NewMeter(1, strings.Clone)
		for i := range 100 {
			m.Scraped(c[i/80])
		}
		text := m.Times().Scrape
		var d dist.Dist
		if err := d.UnmarshalText([]byte(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if longest := machine.Time(d.Quantile(1)); longest > longestHop || longest < machine.FromDuration(c[0]) {
			t.Errorf("%v to %v is fitted as %s, up to %v", c[0], c[1], text, longest)
		}
	}
}
