package workload

import (
	"math"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Gaps have the mean that the rate says, and vary as their process does.
func TestArrivals(t *testing.T) {
	for _, x := range []struct {
		name       string
		process    Process
		burstiness float64
		cv         float64 // deviation over mean
	}{
		{"poisson", Poisson, 1, 1}, {"constant", Constant, 1, 0}, {"gamma", Gamma, 1, 1},
		{"gamma in heaps", Gamma, 0.25, 2}, {"gamma, regular", Gamma, 16, 0.25},
		{"weibull", Weibull, 2, 0.5227}, {"weibull in heaps", Weibull, 0.5, 2.236},
	} {
		c := Config{Seed: 1, Schedule: Schedule{Rate: 100, Process: x.process, Burstiness: x.burstiness}}
		const n = 50_000
		var last machine.Time
		sum, squares := 0.0, 0.0
		a := c.Arrivals()
		for range n {
			at, more := a.Next()
			if !more || at < last {
				t.Fatalf("%s: %v after %v, more %v", x.name, at, last, more)
			}
			gap := (at - last).Seconds()
			sum, squares, last = sum+gap, squares+gap*gap, at
		}
		mean := sum / n
		cv := math.Sqrt(max(0, squares/n-mean*mean)) / mean
		if math.Abs(mean-0.01) > 0.0003 || math.Abs(cv-x.cv) > 0.04*max(1, x.cv) {
			t.Errorf("%s: mean gap %v s at 100 a second, variation %.3f and not %.3f", x.name, mean, cv, x.cv)
		}
	}
}

// In each phase arrive as many as its rates say, none where they are 0, and none
// after the last or the end.
func TestPhases(t *testing.T) {
	phases := []Phase{{10 * machine.Second, 100, 100}, {10 * machine.Second, 100, 300}, {5 * machine.Second, 0, 0},
		{10 * machine.Second, 50, 0}, {machine.Second, 10, 10}}
	c := Config{Seed: 3, Schedule: Schedule{Rate: 1, Process: Constant, Phases: func(i int) (Phase, bool) {
		if i >= len(phases) {
			return Phase{}, false
		}
		return phases[i], true
	}}}
	counts := make([]int, len(phases))
	a := c.Arrivals()
	for at, more := a.Next(); more; at, more = a.Next() {
		i := 0
		for ; at > phases[i].For; i++ {
			at -= phases[i].For
		}
		counts[i]++
	}
	for i, want := range []int{1000, 2000, 0, 250, 10} {
		if d := counts[i] - want; d < -1 || d > 1 {
			t.Errorf("phase %d: %d arrivals, want %d", i, counts[i], want)
		}
	}
	c.Until = 12 * machine.Second
	if n := c.Count(1e6); n < 1235 || n > 1245 { // 1,000 and 100 × 2 + 20 × 2² / 2
		t.Errorf("%d arrivals in 12 s", n)
	}
	if n := c.Count(7); n != 7 {
		t.Errorf("%d arrivals where 7 are the most", n)
	}
	c.Phases = func(int) (Phase, bool) { return Phase{For: machine.Second}, true }
	if c.Until = 0; c.Count(1) != 0 {
		t.Error("somebody arrives in phases without a rate")
	}
}
