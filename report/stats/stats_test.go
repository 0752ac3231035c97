package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The factors are those of printed tables.
func TestT(t *testing.T) {
	for _, c := range []struct {
		confidence float64
		freedom    int
		want       float64
	}{{0.95, 1, 12.706}, {0.95, 9, 2.262}, {0.95, 19, 2.093}, {0.99, 9, 3.250}, {0.9, 5, 2.015}, {0.95, 1000, 1.962}} {
		if got := T(c.confidence, c.freedom); math.Abs(got-c.want) > 0.0006 {
			t.Errorf("t at %v with %d degrees of freedom is %.4f, expected %.3f", c.confidence, c.freedom, got, c.want)
		}
	}
}

func TestAround(t *testing.T) {
	got := Around(3, []float64{1, 2, 3, 4, 5}) // s² = 10/4
	if half := 2.776 * math.Sqrt(2.5/5); math.Abs(got.High-got.Low-2*half) > 0.002 || got.Value != 3 {
		t.Errorf("found %+v, expected 3 ± %.3f", got, half)
	}
}

func TestQuantile(t *testing.T) {
	sorted := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for p, want := range map[float64]float64{0: 1, 0.1: 1, 0.11: 2, 0.5: 5, 0.9: 9, 0.91: 10, 1: 10} {
		if got := Quantile(sorted, p); got != want {
			t.Errorf("the %v-quantile of 1 to 10 is %v, expected %v", p, got, want)
		}
	}
}

// What comes before a series settles is cut off, what settled stays whole, and what
// never settles is told.
func TestWarmUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	series := func(at func(i int) float64) []float64 {
		out := make([]float64, 2000)
		for i := range out {
			out[i] = at(i) + r.NormFloat64()
		}
		return out
	}
	if cut, steady := WarmUp(series(func(int) float64 { return 100 })); cut > 400 || !steady {
		t.Errorf("of a series that is settled, %d were cut, steady %v", cut, steady)
	}
	if cut, steady := WarmUp(series(func(i int) float64 { return 100 - 100*math.Exp(-float64(i)/50) })); cut < 150 || cut > 700 || !steady {
		t.Errorf("of a series that settles within 50 values, %d were cut, steady %v", cut, steady)
	}
	if cut, steady := WarmUp(series(func(i int) float64 { return float64(i) })); steady {
		t.Errorf("a series that grows without end is taken to be steady after %d", cut)
	}
	if cut, steady := WarmUp(make([]float64, 2000)); cut != 0 || !steady {
		t.Errorf("of a constant series %d were cut, steady %v", cut, steady)
	}
}

func TestSlope(t *testing.T) {
	if slope, sure := Slope([]float64{1, 3, 5, 7}); slope != 2 || !math.IsInf(sure, 1) {
		t.Errorf("found %v, sure %v", slope, sure)
	}
	if slope, sure := Slope([]float64{1, 2, 1, 2, 1, 2, 1}); math.Abs(slope) > 0.01 || math.Abs(sure) > 0.1 {
		t.Errorf("found %v, sure %v", slope, sure)
	}
}

// Intervals of 20 sections hold the truth about as often as they promise, for what a queue does
// (waits of M/M/1, by Lindley's recursion), where sections say that they are independent. The
// formula for independent samples would hold it in half of the runs.
func TestIntervalsHoldTheTruth(t *testing.T) {
	const runs, n, k, load = 200, 50_000, 20, 0.5
	trueMean, trueP90 := load/(1-load), math.Log(load/(1-0.9))/(1-load)
	held := map[string]int{}
	for run := range runs {
		r := rand.New(rand.NewPCG(uint64(run), 7))
		waits, wait := make([]float64, n), 0.0
		for i := range waits {
			waits[i] = wait
			wait = max(0, wait+r.ExpFloat64()-r.ExpFloat64()/load)
		}
		of := func(part []float64, p float64) float64 {
			s := slices.Clone(part)
			slices.Sort(s)
			return Quantile(s, p)
		}
		var means, p90 []float64
		for part := range slices.Chunk(waits, n/k) {
			means, p90 = append(means, Mean(part)), append(p90, of(part, 0.9))
		}
		if i := Around(Mean(waits), means); i.Low <= trueMean && trueMean <= i.High {
			held["mean"]++
		}
		if i := Around(of(waits, 0.9), p90); i.Low <= trueP90 && trueP90 <= i.High {
			held["p90"]++
		}
		if !Dependent(means) {
			held["independent"]++
		}
	}
	for name, least := range map[string]int{"mean": 180, "p90": 180, "independent": 180} {
		if held[name] < least {
			t.Errorf("%s: in %d of %d runs, expected %d or more", name, held[name], runs, least)
		}
	}
	t.Log(held)
}

// Sections of something that drifts are dependent.
func TestDependent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	at, walk := 0.0, make([]float64, 20)
	for i := range walk {
		at += r.NormFloat64()
		walk[i] = at
	}
	if !Dependent(walk) {
		t.Error("a random walk's values are taken to be independent")
	}
	if Dependent(make([]float64, 20)) {
		t.Error("values that are all the same are taken to be dependent")
	}
}
