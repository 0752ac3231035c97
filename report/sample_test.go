package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report/stats"
)

// run is a sample of n requests, one every ten milliseconds, of which each takes what
// it is told.
func run(n int, e2e func(i int) time.Duration) *Sample {
	list := make([]Ended, n)
	for i := range list {
		took := uint32(e2e(i).Microseconds())
		list[i] = Ended{Number: int32(i + 1), Sent: machine.FromDuration(10 * time.Millisecond * time.Duration(i)), E2E: took, TTFT: took / 2,
			Prompt: 100, Cached: 25, Tokens: 11, Completed: true}
	}
	return newSample(list, 1)
}

// Every measure of requests that are all alike is what they are.
func TestMeasures(t *testing.T) {
	x := Runs{run(1000, func(int) time.Duration { return 200 * time.Millisecond })}
	slo := SLO{TTFT: 100 * time.Millisecond, TPOT: 10 * time.Millisecond}
	for name, want := range map[string]float64{
		"requests/s": 98.1, "input tokens/s": 9810, "output tokens/s": 1079, "goodput": 100.1, "attainment": 1, "completed": 1, "hit rate": 0.25,
		"ttft p50": 0.1, "tpot mean": 0.01, "itl mean": 0.01, "e2e p99": 0.2,
	} {
		m, ok := MeasureNamed(name)
		if !ok {
			t.Fatalf("no measure is called %s", name)
		}
		e, ok := x.Estimate(m, slo)
		if !ok || math.Abs(e.Value-want) > 0.005*want {
			t.Errorf("%s: found %+v, expected %v", name, e, want)
		}
	}
	slo.TTFT--
	m, _ := MeasureNamed("attainment")
	if e, _ := x.Estimate(m, slo); e.Value != 0 {
		t.Errorf("all are later than the objective, and %v of them are good", e.Value)
	}
	if e, ok := x.Estimate(m, SLO{}); ok {
		t.Errorf("without an objective there is an attainment of %v", e.Value)
	}
	m, _ = MeasureNamed("ttft p99")
	if e, _ := x.Estimate(m, SLO{}); e.Sure || e.Why != "too short: 25,000 requests are needed" {
		t.Errorf("1,000 requests say %+v of a 99th percentile", e)
	}
}

// A queue that builds up is told, and nothing is sure.
func TestOverloadIsNotSteady(t *testing.T) {
	x := Runs{run(5000, func(i int) time.Duration { return time.Millisecond * time.Duration(i) })}
	m, _ := MeasureNamed("e2e mean")
	if e, _ := x.Estimate(m, SLO{}); x[0].Steady || e.Sure || e.Why != "the requests in flight never settle" {
		t.Errorf("requests that take ever longer are steady %v, sure %v: %s", x[0].Steady, e.Sure, e.Why)
	}
}

// The requests in flight, by Little's law, are those of what was sent.
func TestInFlight(t *testing.T) {
	x := run(1000, func(i int) time.Duration { return 25 * time.Millisecond })
	for _, n := range []int{1, 7, 333} {
		if got := stats.Mean(x.InFlight(n)); math.Abs(got-2.5) > 0.02 {
			t.Errorf("in %d intervals %v requests are in flight on average, expected 2.5", n, got)
		}
	}
}

// What is paired is what both have, from when both have warmed up.
func TestPaired(t *testing.T) {
	a, b := run(100, func(int) time.Duration { return time.Second }), run(80, func(int) time.Duration { return time.Second })
	b.Requests = b.Requests[10:]
	x, y := Paired(a, b)
	numbers := func(s *Sample) (out []int32) {
		for _, e := range s.Requests {
			out = append(out, e.Number)
		}
		return out
	}
	if len(x.Requests) == 0 || !slices.Equal(numbers(x), numbers(y)) || x.Requests[0].Number < 11 {
		t.Errorf("paired are %v and %v", numbers(x), numbers(y))
	}
}

// Of very many requests some are kept, evenly, and what is counted per second counts all.
func TestSampleIsThinned(t *testing.T) {
	const n = MaxSample + MaxSample/2
	var kept sample
	for i := range n {
		kept.add(Ended{Number: int32(i + 1), Sent: machine.Millisecond * machine.Time(i), E2E: 1000, Tokens: 3, Completed: true})
	}
	x := newSample(kept.list, int(kept.stride))
	if x.Each != 2 || len(x.Requests) < n/2-n/10 || len(x.Requests) > n/2 {
		t.Errorf("of %d requests %d are kept, each for %d", n, len(x.Requests), x.Each)
	}
	m, _ := MeasureNamed("requests/s")
	if e, _ := (Runs{x}).Estimate(m, SLO{}); math.Abs(e.Value-1000) > 1 {
		t.Errorf("1,000 requests a second are told as %v", e.Value)
	}
}

// A queue with room to spare is steady, however short the run, and one that gets more than it can
// serve is not: M/M/1 by Lindley's recursion.
func TestSteady(t *testing.T) {
	for _, c := range []struct {
		load        float64
		n           int
		least, most int // of 100 runs that are steady
	}{{0.5, 200, 94, 100}, {0.5, 20_000, 99, 100}, {0.8, 2000, 90, 100}, {0.8, 20_000, 97, 100}, {1.05, 20_000, 0, 12}, {1.2, 5000, 0, 3}, {1.5, 1000, 0, 3}} {
		steady := 0
		for seed := range uint64(100) {
			r := rand.New(rand.NewPCG(seed, 3))
			list, at, wait := make([]Ended, c.n), 0.0, 0.0
			for i := range list {
				service := r.ExpFloat64() * 0.01
				list[i] = Ended{Number: int32(i + 1), Sent: machine.Time(at * 1e9), E2E: uint32((wait + service) * 1e6), Completed: true}
				gap := r.ExpFloat64() * 0.01 / c.load
				at, wait = at+gap, max(0, wait+service-gap)
			}
			if newSample(list, 1).Steady {
				steady++
			}
		}
		if steady < c.least || steady > c.most {
			t.Errorf("at %.0f%% load, %d of 100 runs of %d requests are steady; expected %d to %d", 100*c.load, steady, c.n, c.least, c.most)
		}
	}
}
