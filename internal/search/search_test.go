package search

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Whatever the truth is, the band holds it, and is as narrow as what cannot be decided
// lets it be.
func TestSearchHighest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := math.Exp(rapid.Float64Range(-3, 8).Draw(t, "log of where it is no longer kept"))
		high := low * rapid.Float64Range(1, 1.5).Draw(t, "how wide what cannot be decided is")
		first := math.Exp(rapid.Float64Range(-3, 8).Draw(t, "log of the first guess"))
		judged := 0
		b, err := Highest(first, 0.02, 1e-3, 1e6, func(rate float64) (Verdict, error) {
			judged++
			switch {
			case rate <= low:
				return Keeps, nil
			case rate >= high:
				return Misses, nil
			}
			return Undecided, nil
		})
		if err != nil || b.Keeps > low || b.Misses < high || b.Keeps < low/1.05 || b.Misses > high*1.05 || judged > 60 {
			t.Fatalf("found %+v after %d, expected %v to %v", b, judged, low, high)
		}
	})
}

func TestSearchHighestHasBounds(t *testing.T) {
	always := func(v Verdict) func(float64) (Verdict, error) {
		return func(float64) (Verdict, error) { return v, nil }
	}
	for v, want := range map[Verdict]Band{Keeps: {Keeps: 1000}, Misses: {Misses: 1}, Undecided: {}} {
		if b, _ := Highest(30, 0.02, 1, 1000, always(v)); b != want {
			t.Errorf("where all %v, found %+v, expected %+v", v, b, want)
		}
	}
}

func TestFewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.IntRange(1, 300).Draw(t, "fewest")
		unsure := rapid.Bool().Draw(t, "whether the one below is undecided")
		n, sure, odd, err := Fewest(rapid.IntRange(1, 300).Draw(t, "first"), 512, func(n int) (Verdict, error) {
			switch {
			case n >= want:
				return Keeps, nil
			case n == want-1 && unsure:
				return Undecided, nil
			}
			return Misses, nil
		})
		if n != want || odd || err != nil || sure == (unsure && want > 1) {
			t.Fatalf("found %d, sure %v, odd %v, expected %d", n, sure, odd, want)
		}
	})
	if n, _, odd, _ := Fewest(1, 8, func(n int) (Verdict, error) { return map[bool]Verdict{true: Keeps, false: Misses}[n == 4], nil }); n != 4 || !odd {
		t.Errorf("4 alone keeps it: found %d, odd %v", n, odd)
	}
	if n, sure, _, _ := Fewest(1, 8, func(int) (Verdict, error) { return Misses, nil }); n != 0 || !sure {
		t.Errorf("none keeps it: found %d, sure %v", n, sure)
	}
}

func TestBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 100).Draw(t, "most")
		want := rapid.IntRange(1, most).Draw(t, "where")
		at, err := Best(rapid.IntRange(0, 100).Draw(t, "first"), most, func(n int) (float64, error) { return 1000 - math.Abs(float64(n-want)), nil })
		if at != want || err != nil {
			t.Fatalf("found %d of %d, expected %d", at, most, want)
		}
	})
}
