package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/nightly"
)

// run returns a sample of n requests, one every ten milliseconds, with the times that e2e returns.
func run(n int, e2e func(i int) time.Duration) *Sample {
	list := make([]Ended, n)
	for i := range list {
		took := machine.FromDuration(e2e(i))
		list[i] = Ended{Number: int32(i + 1), Sent: machine.FromDuration(10 * time.Millisecond * time.Duration(i)),
			E2E: took, TTFT: took / 2,
			Prompt: 100, Cached: 25, Tokens: 11, Completed: true}
	}
	return newSample(list, 1)
}

// Every measure of equal requests has their value.
func TestMeasures(t *testing.T) {
	x := Runs{run(1000, func(int) time.Duration { return 200 * time.Millisecond })}
	slo := record.SLO{TTFT: 100 * time.Millisecond, TPOT: 10 * time.Millisecond}
	for name, want := range map[string]float64{
		"requests/s": 100, "input tokens/s": 10_000, "output tokens/s": 1100, "goodput": 100, "in flight": 20,
		"attainment": 1, "completed": 1, "hit rate": 0.25,
		"ttft p50": 0.1, "tpot mean": 0.01, "itl mean": 0.01, "e2e p99": 0.2,
	} {
		m, ok := MeasureNamed(name)
		if !ok {
			t.Fatalf("no measure is called %s", name)
		}
		e, ok := x.Under(slo).Estimate(m)
		if !ok || math.Abs(e.Value-want) > 0.005*want {
			t.Errorf("%s: found %+v, expected %v", name, e, want)
		}
	}
	slo.TTFT--
	m, _ := MeasureNamed("attainment")
	if e, _ := x.Under(slo).Estimate(m); e.Value != 0 {
		t.Errorf("all are later than the objective, and %v of them are good", e.Value)
	}
	if e, ok := x.Under(record.SLO{}).Estimate(m); ok {
		t.Errorf("without an objective there is an attainment of %v", e.Value)
	}
	m, _ = MeasureNamed("ttft p99")
	if e, _ := x.Under(record.SLO{}).Estimate(m); e.Sure || e.Why != "too short: 25,000 requests are needed" {
		t.Errorf("1,000 requests say %+v of a 99th percentile", e)
	}
}

// A growing queue is reported, and no measure has an interval.
func TestOverloadIsNotSteady(t *testing.T) {
	x := Runs{run(5000, func(i int) time.Duration { return time.Millisecond * time.Duration(i) })}
	m, _ := MeasureNamed("e2e mean")
	if e, _ := x.Under(record.SLO{}).Estimate(m); x[0].Steady || e.Sure ||
		e.Why != "the requests in flight never settle" {
		t.Errorf("requests that take ever longer are steady %v, sure %v: %s", x[0].Steady, e.Sure, e.Why)
	}
}

// Little's law holds exactly: the requests in flight, summed up over the window, are the time that requests spent in
// it, for all requests and divisions of the window.
func TestLittlesLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := make([]Ended, rapid.IntRange(1, 200).Draw(t, "requests"))
		at := machine.Time(0)
		for i := range list {
			at += machine.Time(rapid.Int64Range(1e6, 1e9).Draw(t, "gap"))
			list[i] = Ended{Number: int32(i + 1), Sent: at, E2E: machine.Time(rapid.Int64Range(0, 1e11).Draw(t, "e2e")),
				Completed: true}
		}
		x := newSample(slices.Clone(list), 1)
		spent := 0.0
		for _, e := range list {
			spent += max(0, (min(e.ends(), x.To) - max(e.Sent, x.From)).Seconds())
		}
		a := (Runs{x}).Under(record.SLO{})
		for _, k := range []int{1, 7, 20} {
			there := 0.0
			for _, p := range a.sections(k) {
				there += p.inFlight * p.seconds
			}
			if k <= len(x.Requests) && math.Abs(there-spent) > 1e-9*max(spent, 1e-3*(x.To-x.From).Seconds()) {
				t.Fatalf("in %d sections %v request-seconds are in flight; requests spent %v s in the window", k, there,
					spent)
			}
		}
	})
}

// The figures of a steady run keep to L = λW, of an open loop and of a closed one.
func TestLittlesLawOfTheSummary(t *testing.T) {
	for name, x := range map[string]*Sample{
		"open": run(10_000, func(i int) time.Duration { return time.Duration(150+i*7919%100) * time.Millisecond }),
		"closed": closed(10_000, 50,
			func(i int) time.Duration { return time.Duration(150+i*7919%100) * time.Millisecond }),
	} {
		of := map[string]float64{}
		for _, m := range (Runs{x}).Under(record.SLO{}).All() {
			of[m.Measure] = m.Value
		}
		if l, w := of["in flight"], of["requests/s"]*of["e2e mean"]; math.Abs(l-w) > 0.01*l {
			t.Errorf("%s: %v requests are in flight, and %v requests/s take %v s each: %v", name, l, of["requests/s"],
				of["e2e mean"], w)
		}
	}
}

// closed returns a sample of n requests that so many clients send, each as soon as its last one has ended.
func closed(n, clients int, e2e func(i int) time.Duration) *Sample {
	list, free := make([]Ended, n), make([]machine.Time, clients)
	for i := range list {
		next := 0
		for k := range free {
			if free[k] < free[next] {
				next = k
			}
		}
		list[i] = Ended{Number: int32(i + 1), Sent: free[next], E2E: machine.FromDuration(e2e(i)), Tokens: 1,
			Completed: true}
		free[next] = list[i].ends()
	}
	return newSample(list, 1)
}

// Goodput counts among the requests that completed in the window, so that it never exceeds their rate.
func TestGoodputIsPartOfThroughput(t *testing.T) {
	x := Runs{closed(2000, 500,
		func(i int) time.Duration { return time.Duration(100+i%900) * time.Millisecond })}.Under(
		record.SLO{E2E: time.Minute})
	of := func(name string) float64 { e, _ := x.Estimate(mustMeasure(name)); return e.Value }
	if good, all := of("goodput"), of("requests/s"); good != all || of("attainment") != 1 {
		t.Errorf("all of %v requests/s are good, and goodput is %v", all, good)
	}
}

// Durations beyond 71.6 minutes keep their values.
func TestLongDurations(t *testing.T) {
	x := Runs{run(400, func(i int) time.Duration { return 90*time.Minute + time.Duration(i)*time.Second })}.Under(
		record.SLO{E2E: time.Hour})
	for name, want := range map[string]float64{"e2e p50": 5599, "tpot p50": 279.95, "attainment": 0} {
		if e, ok := x.Estimate(mustMeasure(name)); !ok || math.Abs(e.Value-want) > 0.001*want {
			t.Errorf("%s is %v, expected %v", name, e.Value, want)
		}
	}
}

// Pairs are the requests in both runs, from the end of both warm-ups.
func TestPaired(t *testing.T) {
	a, b := run(100, func(int) time.Duration { return time.Second }),
		run(80, func(int) time.Duration { return time.Second })
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

// Very many requests are thinned evenly, and counts per second include all of them.
func TestSampleIsThinned(t *testing.T) {
	const n = MaxSample + MaxSample/2
	var kept sample
	for i := range n {
		kept.add(Ended{Number: int32(i + 1), Sent: machine.Millisecond * machine.Time(i), E2E: machine.Millisecond,
			Tokens: 3, Completed: true})
	}
	x := newSample(kept.list, int(kept.stride))
	if x.Each != 2 || len(x.Requests) < n/2-n/10 || len(x.Requests) > n/2 {
		t.Errorf("of %d requests %d are kept, each for %d", n, len(x.Requests), x.Each)
	}
	m, _ := MeasureNamed("requests/s")
	if e, _ := (Runs{x}).Under(record.SLO{}).Estimate(m); math.Abs(e.Value-1000) > 1 {
		t.Errorf("1,000 requests a second are reported as %v", e.Value)
	}
}

// A queue with room to spare is steady, however short the run, and one that gets more than it can
// serve is not: M/M/1 by Lindley's recursion.
func TestSteady(t *testing.T) {
	for _, c := range []struct {
		load        float64
		n           int // more than 20,000 by night only
		least, most int // of 100 runs that are steady
	}{{0.5, 200, 94, 100}, {0.5, 20_000, 99, 100}, {0.8, 2000, 90, 100}, {0.8, 20_000, 97, 100}, {0.9, 5000, 80, 100},
		{0.9, 100_000, 99, 100}, {1.002, 20_000, 0, 30}, {1.002, 100_000, 0, 30}, {1.05, 20_000, 0, 12},
		{1.2, 5000, 0, 3}, {1.5, 1000, 0, 3}} {
		if c.n > 20_000 && !nightly.On() {
			continue
		}
		steady := 0
		for seed := range uint64(100) {
			r := rand.New(rand.NewPCG(seed, 3))
			list, at, wait := make([]Ended, c.n), 0.0, 0.0
			for i := range list {
				service := r.ExpFloat64() * 0.01
				list[i] = Ended{Number: int32(i + 1), Sent: machine.Time(at * 1e9),
					E2E: machine.Time((wait + service) * 1e9), Completed: true}
				gap := r.ExpFloat64() * 0.01 / c.load
				at, wait = at+gap, max(0, wait+service-gap)
			}
			if newSample(list, 1).Steady {
				steady++
			}
		}
		if steady < c.least || steady > c.most {
			t.Errorf("at %.0f%% load, %d of 100 runs of %d requests are steady; expected %d to %d", 100*c.load, steady,
				c.n, c.least, c.most)
		}
	}
}

// Requests that come regularly and all take as long are steady at any rate, also where they beat with the parts of the
// series.
func TestRegularTrafficIsSteady(t *testing.T) {
	for _, n := range []int{300, 1000, 6000} {
		for percent := 5; percent < 600; percent += 3 {
			took := time.Duration(percent) * 100 * time.Microsecond // of a gap of 10 ms
			if !run(n, func(i int) time.Duration { return took + time.Duration(i*7919%100)*time.Microsecond }).Steady {
				t.Errorf("%d requests, one every 10 ms, that take %s are not steady", n, took)
			}
		}
	}
}

func mustMeasure(name string) Measure {
	m, ok := MeasureNamed(name)
	if !ok {
		panic("no measure is called " + name)
	}
	return m
}
