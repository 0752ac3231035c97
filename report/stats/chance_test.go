package stats

import (
	"math"
	"testing"
)

// A value at the end of its interval has the p-value that is left beyond the interval, and one of 0 has 1.
func TestP(t *testing.T) {
	for _, freedom := range []int{1, 4, 19, 1000} {
		i := Interval{Value: -2 * T(Confidence, freedom), SE: 2, Freedom: freedom}
		if got := i.P(); math.Abs(got-(1-Confidence)) > 1e-9 {
			t.Errorf("with %d degrees of freedom p is %v, expected %v", freedom, got, 1-Confidence)
		}
	}
	for want, i := range map[float64]Interval{1: {Freedom: 19}, 0: {Value: 1, Freedom: 19}} {
		if got := i.P(); got != want {
			t.Errorf("p of %+v is %v, expected %v", i, got, want)
		}
	}
}

// Holm's own correction: the smallest of four counts four times, the next three times, and none less than one
// before it.
func TestHolm(t *testing.T) {
	got := Holm([]float64{0.04, 0.001, 0.6, 0.011})
	for i, want := range []float64{0.08, 0.004, 0.6, 0.033} {
		if math.Abs(got[i]-want) > 1e-12 {
			t.Fatalf("found %v, expected %v at %d", got, want, i)
		}
	}
	if got := Holm([]float64{0.02, 0.03, 0.026}); got[0] != 0.06 || got[1] != 0.06 || got[2] != 0.06 {
		t.Errorf("found %v, expected 0.06 of each", got)
	}
}
