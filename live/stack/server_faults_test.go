package stack

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/scenario"
)

// Whatever a model server does wrong, the client gets an error, the held
// request is closed, and an error of Envoy's is never taken for a first token.
func TestModelServerFaults(t *testing.T) {
	t.Parallel()
	for _, upstream := range []scenario.HTTPVersion{scenario.HTTP1, scenario.HTTP2} {
		t.Run(string(upstream), func(t *testing.T) {
			t.Parallel()
			r := start(t, quick(func(s *scenario.Scenario) { s.Pools[0].Upstream = upstream }), nil)
			for _, c := range []struct {
				fault  string
				status []int
			}{
				{"refuse", []int{502, 503}},
				{"reset", []int{502, 503}},
				{"die-in-prefill", []int{502, 503}},
				{"status=400", []int{400}},
				{"status=404", []int{404}},
				{"status=429", []int{429}},
				{"status=500", []int{500}},
				{"status=503", []int{503}},
				{"status=204", []int{204, 502}},
				{"no-body", []int{502}},
			} {
				was := r.rec.count(record.EPP, record.Part2Sent)
				a := r.fault(c.fault)
				if a.err != nil || !slices.Contains(c.status, a.status) {
					t.Errorf("%s: got %d %v %q, want one of %v", c.fault, a.status, a.err, a.body, c.status)
				}
				if r.rec.count(record.EPP, record.Part2Sent) != was {
					t.Errorf("%s: part 2 was sent", c.fault)
				}
				r.healthy()
			}
			// Ends that come after the first token cannot change the status any
			// more; they must not look like a whole answer.
			for _, fault := range []string{"end-before-part2", "reset-after=2"} {
				a := r.fault(fault)
				if a.err == nil && strings.Contains(a.body, `"metadata"`) {
					t.Errorf("%s: looks whole: %q", fault, a.body)
				}
				r.healthy()
			}
		})
	}
}

// A model server that is gone is left out, and a pool without any is a 503.
func TestNoReadyEndpoint(t *testing.T) {
	t.Parallel()
	r := start(t, quick(nil), nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.Fleet.Stop(ctx)
	r.until("503 by the EPP", func() bool {
		a := r.post("/v1/chat/completions", chat)
		return a.status == 503 && strings.Contains(a.body, "screeners eliminated all endpoint candidates")
	})
	r.idle()
}

func TestPrefillLongerThanHold(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) {
		s.Pools[0].EPP.HoldLimit = 3 * time.Second
	}), nil)
	a := r.fault("stall=0")
	if a.status != 504 || !strings.Contains(a.body, "hold limit") {
		t.Fatalf("got %d %q", a.status, a.body)
	}
	r.healthy()
}

// The client leaves in the middle of each phase; everybody forgets the request.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for _, upstream := range []scenario.HTTPVersion{scenario.HTTP1, scenario.HTTP2} {
		t.Run(string(upstream), func(t *testing.T) {
			t.Parallel()
			r := start(t, quick(func(s *scenario.Scenario) {
				p := &s.Pools[0]
				p.Upstream = upstream
				p.ModelServer.InterTokenLatency = dist.Fixed(20 * machine.Millisecond)
				p.ModelServer.OutputTokens = mustCount("100000")
				p.ModelServer.Prefill = dist.Fixed(machine.Second / 2)
			}), nil)
			t.Run("upload", func(t *testing.T) {
				pr, pw := io.Pipe()
				ctx, leave := context.WithCancel(context.Background())
				req := r.request(ctx, http.MethodPost, "/v1/chat/completions", "")
				req.Body, req.ContentLength = pr, -1
				done := make(chan answer)
				go func() { done <- do(req) }()
				if _, err := pw.Write([]byte(chat[:20])); err != nil {
					t.Fatal(err)
				}
				r.until("the EPP has the stream", func() bool { return r.Picker.Server().Active() > 0 })
				leave()
				pw.CloseWithError(context.Canceled)
				<-done
				r.idle()
			})
			for _, phase := range []struct {
				name string
				step record.Step
			}{{"hold", record.PrefillStarted}, {"decode", record.DecodeStarted}} {
				t.Run(phase.name, func(t *testing.T) {
					aborted, reached := r.rec.count(record.Server, record.Aborted),
						r.rec.count(record.Server, phase.step)
					ctx, leave := context.WithCancel(context.Background())
					done := make(chan answer)
					go func() {
						done <- do(r.request(ctx, http.MethodPost, "/v1/chat/completions", chat))
					}()
					r.until(string(phase.step), func() bool { return r.rec.count(record.Server, phase.step) > reached })
					leave()
					<-done
					r.idle()
					if r.rec.count(record.Server, record.Aborted) != aborted+1 {
						t.Fatal("the model server did not report that it gave up")
					}
				})
			}
		})
	}
}

func mustCount(text string) dist.Dist {
	d, err := dist.ParseCount(text)
	if err != nil {
		panic(err)
	}
	return d
}

// Envoy tries again: one outcome for the request, each attempt seen.
func TestRetries(t *testing.T) {
	t.Parallel()
	var failed bool
	r := start(t, quick(func(s *scenario.Scenario) { s.Pools[0].Replicas = 1 }), func(o *Options) {
		o.Envoy = retryTwice
		o.Faults = func(so *modelserver.ServerOptions) {
			so.Faults.Of = func(string) lifecycle.Fault {
				if !failed {
					failed = true
					return lifecycle.Fault{lifecycle.AtAnswer: {Do: lifecycle.Answer, N: 503}}
				}
				return lifecycle.Fault{}
			}
		}
	})
	a := r.post("/v1/chat/completions", chat)
	if a.status != 200 || !strings.Contains(a.body, "[DONE]") {
		t.Fatalf("got %d %v %q", a.status, a.err, a.body)
	}
	r.until("Envoy has logged it", func() bool { return r.rec.count(record.Envoy, record.Logged) == 1 })
	for _, e := range r.rec.all() {
		if e.Step == record.Logged && e.Details.Get("attempts") != 2 {
			t.Fatalf("Envoy counts %v attempts", e.Details.Get("attempts"))
		}
		if e.Step == record.Part1Received && e.Attempt != 2 {
			t.Fatalf("the model server took it for attempt %d", e.Attempt)
		}
	}
	r.healthy()
}
