package virtual

import (
	"fmt"
	"math"
	"testing"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/latency/dist"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// erlangC is the probability that a request waits for one of c servers, at a load of so much
// of all of them.
func erlangC(c int, load float64) float64 {
	a := load * float64(c)
	term, sum := 1.0, 0.0
	for k := range c {
		sum += term
		term *= a / float64(k+1)
	}
	last := term / (1 - load)
	return last / (sum + last)
}

// The mean wait for a model server is the one that queueing theory has: for service times that are
// all the same (Pollaczek and Khinchine), and exponential ones at one place and at four. Service takes
// 100 ms on average. Its interval, of at most 25 % to either side, holds the truth, or it is within 3 % of it.
func TestWaitsAreThoseOfQueueingTheory(t *testing.T) {
	const tokens = "exponential(100, min=1, max=10000)"
	exponential := "interTokenLatency: 1ms, prefill: 1ms, outputTokens: '" + tokens + "'"
	// Whole tokens, of which each has at least one, are 100.8 on average: at 95 % that is a fifth of the wait.
	d, err := dist.ParseCount(tokens)
	if err != nil {
		t.Fatal(err)
	}
	drawn := 0.0
	for i := range 1_000_000 {
		draw := machine.NewDraw(1, "queueing", "tokens", uint64(i))
		drawn += float64(d.Sample(&draw))
	}
	loads := []float64{0.5, 0.8}
	if nightly.On() {
		loads = append(loads, 0.95) // of long runs
	}
	for _, q := range []struct {
		name, server string
		places       int
		wait         func(load float64) float64 // in services
	}{
		{"M/D/1", "batching: none, interTokenLatency: 1ms, prefill: 100ms, outputTokens: 1", 1, func(r float64) float64 { return r / (2 * (1 - r)) }},
		{"M/M/1", "batching: none, " + exponential, 1, func(r float64) float64 { return r / (1 - r) }},
		{"M/M/4", "batching: continuous, maxNumSeqs: 4, " + exponential, 4, func(r float64) float64 { return erlangC(4, r) / (4 * (1 - r)) }},
	} {
		for _, load := range loads {
			t.Run(fmt.Sprintf("%s at %.0f%%", q.name, 100*load), func(t *testing.T) {
				t.Parallel()
				if testing.Short() {
					t.Skip("long")
				}
				service := 0.1
				if q.name != "M/D/1" {
					service = drawn / 1e6 / 1e3
				}
				// Near saturation a queue forgets slowly (1,559 services at 95 %): more of longer runs.
				seeds, requests := 4, 8_000
				if load > 0.9 {
					seeds, requests = 12, 50_000
				}
				var runs report.Runs
				for seed := range seeds {
					s, err := scenario.Parse("queue.yaml", fmt.Appendf(nil, `{apiVersion: windtunnel/v1alpha1, kind: Scenario, name: queue, seed: %d,
						pools: [{name: default, flow: plain, replicas: 1, modelServer: {%s}}],
						workload: {requests: %d, rate: %v, concurrency: 1000000, timeout: 24h}}`, 11+seed, q.server, requests, load*float64(q.places)/service))
					if err != nil {
						t.Fatal(err)
					}
					s.Hops = scenario.Hops{}
					tally := report.NewTally()
					if err := Run(s, tally, nil); err != nil {
						t.Fatal(err)
					}
					runs = append(runs, tally.Sample())
				}
				m, _ := report.MeasureNamed("ttft mean")
				e, _ := runs.Under(report.SLO{}).Estimate(m)
				first := 0.001
				if q.name == "M/D/1" {
					first = service
				}
				want := q.wait(load)*service + first
				if !e.Sure || (want < e.Low || want > e.High) && math.Abs(e.Value-want) > 0.03*want {
					t.Errorf("the mean time to the first token is %.1f ms (%.1f to %.1f, %s), expected %.1f ms", 1e3*e.Value, 1e3*e.Low, 1e3*e.High, e.Why, 1e3*want)
				}
				if half := (e.High - e.Low) / 2; half > 0.25*want {
					t.Errorf("the interval is %.0f%% of the wait to either side: it would hold nearly everything", 100*half/want)
				}
				t.Logf("%.1f ms (%.1f to %.1f), expected %.1f ms", 1e3*e.Value, 1e3*e.Low, 1e3*e.High, 1e3*want)
			})
		}
	}
}

// Little's law: what is in the engines on average over time is what comes to them per second, times
// how long it stays, whatever they do with it: batches, queues, too little memory.
func TestLittlesLaw(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, server, load string }{
		{"room for all", "batching: continuous, outputTokens: 20..200", "rate: 20"},
		{"queues", "batching: continuous, maxNumSeqs: 4, outputTokens: 20..200", "rate: 12"},
		{"too little memory", "batching: continuous, numGPUBlocks: 300, maxModelLen: 4096, outputTokens: 200..900", "concurrency: 40"},
		{"static", "batching: static, maxNumSeqs: 8, outputTokens: 20..200", "concurrency: 40"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := scenario.Parse("little.yaml", fmt.Appendf(nil, `{apiVersion: windtunnel/v1alpha1, kind: Scenario,
				pools: [{name: default, flow: plain, replicas: 2, modelServer: {%s}}],
				workload: {requests: 400, timeout: 24h, prompt: {characters: 100..6000}, %s}}`, c.server, c.load))
			if err != nil {
				t.Fatal(err)
			}
			var ended machine.Time
			stayed, came, n := machine.Time(0), map[string]machine.Time{}, 0
			var loads []report.ServerLoad
			if _, err := Play(s, flow.Func(func(e flow.Event) {
				if e.Step == flow.Finished {
					ended = e.Time
				}
				switch {
				case e.Hop != flow.Server:
				case e.Step == flow.RequestReceived:
					came[e.Request] = e.Time
				case e.Step == flow.LastTokenSent:
					stayed += e.Time - came[e.Request]
					n++
				}
			}), Options{Served: func(list []report.ServerLoad) { loads = list }}); err != nil {
				t.Fatal(err)
			}
			there, preempted := 0.0, uint64(0)
			for i := range loads {
				l := &loads[i].Load
				there += (l.Running.Mean(l.For) + l.Waiting.Mean(l.For)) * l.For.Seconds()
				preempted += l.Preemptions
			}
			if n != 400 || math.Abs(there-stayed.Seconds()) > 1e-3*there {
				t.Errorf("%d requests stayed for %v s together; over time there were %v request-seconds", n, stayed.Seconds(), there)
			}
			for i := range loads {
				if l := &loads[i].Load; l.For > loads[0].Load.For || l.For.Seconds() > 1.001*ended.Seconds() || l.Prompts <= 0 || l.Prompts >= l.Busy || l.Busy > l.For {
					t.Errorf("%s is told of for %s, busy for %s and %s of that with prompts; the last request ended at %s", loads[i].Name, l.For, l.Busy, l.Prompts, ended)
				}
			}
			if (c.name == "too little memory") != (preempted > 0) {
				t.Errorf("%d preemptions", preempted)
			}
		})
	}
}
