// Package hops compares a simulation with the live run that it stands for. The hop times measured in one live run are
// used in the simulation of another run, with another seed and load. Requests must wait in queues for as long in
// both.
package hops

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/gate"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// closed is a closed loop: each request follows the end of another, so the time of its way there and back determines
// where in an engine step it arrives.
const closed = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
seed: %d
pools:
- name: pool
  model: llama-3.1-8b
  replicas: 2
  modelServer: {batching: continuous, accelerator: H100, outputTokens: 8..24}
workload: {requests: %d, concurrency: %d, prompt: {characters: 1000..2000}}
%s`

func parse(b *testing.B, seed, requests, concurrency int, hops string) *scenario.Scenario {
	b.Helper()
	s, err := scenario.Parse("closed.yaml", fmt.Appendf(nil, closed, seed, requests, concurrency, hops))
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// live plays a scenario in wall time.
func live(b *testing.B, s *scenario.Scenario) report.Summary {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	origin := time.Now()
	var session atomic.Pointer[report.Session]
	st, err := stack.Start(ctx, stack.Options{Scenario: s, Origin: origin, Dir: b.TempDir(),
		Recorder: record.Func(func(e record.Event) {
			if x := session.Load(); x != nil {
				x.Record(e)
			}
		}),
		Scraped: func(took time.Duration) {
			if x := session.Load(); x != nil {
				x.Scraped(took)
			}
		}})
	if err != nil {
		b.Fatal(err)
	}
	x, err := report.Start(report.Options{Out: io.Discard, Requests: s.Workload.Requests,
		Clock: func() machine.Time { return machine.FromDuration(time.Since(origin)) }})
	if err != nil {
		b.Fatal(err)
	}
	session.Store(x)
	loadErr := st.Load(ctx)
	if err := st.Stop(ctx); err != nil {
		b.Error(err)
	}
	sum, err := x.End(false)
	if err != nil || loadErr != nil || sum.Failed() > 0 {
		b.Fatalf("%v, %v, %v", err, loadErr, sum.Outcomes)
	}
	return sum
}

// queued returns the median queueing time in milliseconds.
func queued(b *testing.B, s report.Summary) float64 {
	b.Helper()
	span, ok := s.Span("queue")
	if !ok {
		b.Fatal("nobody queued")
	}
	return span.P50 * 1000
}

// A simulation with the hop times of one live run predicts the queueing time in other live runs. The figures require
// an otherwise idle machine.
func BenchmarkQueueAsLive(b *testing.B) {
	requests := 400
	if testing.Short() {
		requests = 20
	}
	for b.Loop() {
		var hops bytes.Buffer
		if err := live(b, parse(b, 1, requests, 8, "")).HopTimes.Write(&hops); err != nil {
			b.Fatal(err)
		}
		b.Log(hops.String())
		for _, c := range []struct{ seed, concurrency int }{{5, 6}, {7, 16}, {9, 4}} {
			wall := queued(b, live(b, parse(b, c.seed, requests, c.concurrency, "")))
			tally := report.NewTally()
			if err := virtual.Run(parse(b, c.seed, requests, c.concurrency, hops.String()), tally, nil); err != nil {
				b.Fatal(err)
			}
			sim := queued(b, tally.Summary())
			b.Logf("%d at once: queue p50 live %.2f ms, sim %.2f ms", c.concurrency, wall, sim)
			gate.AtMost(b, math.Abs(sim-wall), fmt.Sprintf("queue-p50-of-%d-off-ms", c.concurrency), 0.5)
		}
	}
}
