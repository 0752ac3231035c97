package stats

import (
	"math"
	"math/rand/v2"
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
	got := Around(3, []float64{1, 2, 3, 4, 5}, 1) // s² = 10/4
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

// The warm-up of a series is cut off, and a settled series stays whole, whatever peak it begins with.
func TestWarmUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	series := func(at func(i int) float64) []float64 {
		out := make([]float64, 2000)
		for i := range out {
			out[i] = at(i) + r.NormFloat64()
		}
		return out
	}
	for _, c := range []struct {
		name        string
		series      []float64
		least, most int
	}{
		{"settled", series(func(int) float64 { return 100 }), 0, 10},
		{"from empty", series(func(i int) float64 { return 100 - 100*math.Exp(-float64(i)/50) }), 100, 400},
		{"from cold caches", series(func(i int) float64 { return 100 + 100*math.Exp(-float64(i)/50) }), 150, 700},
		{"constant", make([]float64, 2000), 0, 0},
	} {
		if cut := WarmUp(c.series); cut < c.least || cut > c.most {
			t.Errorf("%s: %d values were cut, expected %d to %d", c.name, cut, c.least, c.most)
		}
	}
	at := 0.0
	walk := series(func(i int) float64 { at = 0.98*at + r.NormFloat64(); return 20*max(0, 1-float64(i)/100) + at })
	if cut := WarmUp(walk); cut > 300 {
		t.Errorf("of a series that begins with a chance peak, %d values were cut", cut)
	}
}

// A series with a memory amounts to as many independent observations as theory has: (1-a)/(1+a) of an AR(1) process.
func TestIndependent(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, a := range []float64{0, 0.5, 0.9} {
		sum := 0.0
		for range 100 {
			series, at := make([]float64, 1000), 0.0
			for i := range series {
				at = a*at + r.NormFloat64()
				series[i] = at
			}
			sum += 1 / Independent(series) / 100
		}
		if got, want := 1/sum/1000, (1-a)/(1+a); math.Abs(got-want) > 0.2*want {
			t.Errorf("with a memory of %v, %v of the values are independent, expected %v", a, got, want)
		}
	}
	if got := Independent(make([]float64, 30)); got != 30 {
		t.Errorf("30 values that are all the same amount to %v observations", got)
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
