package stack

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/size"
	"github.com/windtunnel/windtunnel/virtual"
)

// load plays the scenario's own workload and returns its record.
func (r *rig) load() []record.Event {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	if err := r.Load(ctx); err != nil {
		r.t.Fatal(err)
	}
	r.idle()
	r.until("Envoy has logged every request", func() bool {
		return r.rec.count(record.Envoy, record.Logged) == r.rec.count(record.Client, record.RequestSent)
	})
	return r.rec.all()
}

func wantCompleted(t *testing.T, events []record.Event, n int) {
	t.Helper()
	done := 0
	for _, e := range events {
		if e.Step != record.Finished {
			continue
		}
		if e.Details.Get("outcome") == string(record.Completed) {
			done++
		} else {
			t.Errorf("%s: %v", e.Request, e.Details)
		}
	}
	if done != n {
		t.Fatalf("%d of %d requests completed", done, n)
	}
}

// Document 000 through a real Envoy, in every combination of protocols and
// payloads; and the same scenario in virtual time gives the same record.
func TestHeldFlow(t *testing.T) {
	t.Parallel()
	for d, downstream := range []scenario.HTTPVersion{scenario.HTTP1, scenario.HTTP2} {
		for u, upstream := range []scenario.HTTPVersion{scenario.HTTP1, scenario.HTTP2} {
			t.Run(fmt.Sprintf("%s-%s", downstream, upstream), func(t *testing.T) {
				t.Parallel()
				for i, payload := range []string{"ascii 1B", "unicode 5000B", "boundary-like 20000B", "ascii 4MiB",
					"unicode 1MiB"} {
					if !nightly.Each(2*d+u+i, 4) { // by day each payload once, and each combination
						continue
					}
					var alphabet, size string
					if _, err := fmt.Sscan(payload, &alphabet, &size); err != nil {
						t.Fatal(err)
					}
					s := quick(func(s *scenario.Scenario) {
						s.Pools[0].Upstream = upstream
						s.Pools[0].EPP.MaxBodyBytes = 16 << 20
						s.Pools[0].ModelServer.MaxModelLen = 8 << 20
						w := &s.Workload
						w.HTTP, w.Requests, w.Concurrency = downstream, 3, 3
						w.Stream, w.ChunkedUpload = i%2 == 0, i%2 == 1
						w.Prompt = scenario.Prompt{Alphabet: scenario.Alphabet(alphabet), Bytes: byteRange(t, size)}
					})
					r := start(t, s, nil)
					events := r.load()
					wantCompleted(t, events, 3)
					if err := record.CheckEdges(events, record.HeldEdges()); err != nil {
						t.Fatalf("%s: %v", payload, err)
					}
					var played []record.Event
					if err := virtual.Run(s, record.Func(func(e record.Event) { played = append(played, e) }),
						nil); err != nil {
						t.Fatal(err)
					}
					if err := record.Same(events, played, record.Envoy); err != nil {
						t.Fatalf("%s: live and virtual differ: %v", payload, err)
					}
				}
			})
		}
	}
}

func byteRange(t *testing.T, text string) size.Range {
	r, err := size.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The same for requests that are sent on whole.
func TestPlainFlow(t *testing.T) {
	t.Parallel()
	s := quick(func(s *scenario.Scenario) {
		s.Pools[0].Flow = scenario.Plain
		s.Workload.Requests, s.Workload.Concurrency = 20, 5
	})
	r := start(t, s, nil)
	events := r.load()
	wantCompleted(t, events, 20)
	if err := record.CheckEdges(events, record.PlainEdges()); err != nil {
		t.Fatal(err)
	}
	var played []record.Event
	if err := virtual.Run(s, record.Func(func(e record.Event) { played = append(played, e) }), nil); err != nil {
		t.Fatal(err)
	}
	if err := record.Same(events, played, record.Envoy); err != nil {
		t.Fatal(err)
	}
}

// 2,000 requests held at one time on one Envoy do not disturb each other.
func TestManyHeld(t *testing.T) {
	t.Parallel()
	const n = 2000
	s := quick(func(s *scenario.Scenario) { s.Workload.Requests, s.Workload.Concurrency = n, n })
	var r *rig
	var came, most atomic.Int64
	all := make(chan struct{})
	r = start(t, s, func(o *Options) {
		o.Faults = func(so *modelserver.ServerOptions) {
			// No server reads on before all are here.
			so.Faults.Of = func(string) lifecycle.Fault {
				if came.Add(1) == n {
					most.Store(int64(r.Picker.Server().Active()))
					close(all)
				}
				<-all
				return lifecycle.Fault{}
			}
		}
	})
	events := r.load()
	wantCompleted(t, events, n)
	if most.Load() != n {
		t.Fatalf("%d were held at once", most.Load())
	}
}
