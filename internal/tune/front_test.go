package tune

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func scored(values ...[2]float64) (out []*candidate) {
	for _, v := range values {
		out = append(out, &candidate{score: Score{Values: v}})
	}
	return out
}

// A front has what nothing dominates, and its knee is where both objectives are low.
func TestFront(t *testing.T) {
	list := scored([2]float64{1, 10}, [2]float64{2, 3}, [2]float64{10, 1}, [2]float64{3, 3}, [2]float64{2, 3},
		[2]float64{11, 11})
	list = append(list, &candidate{score: Score{Violation: 1}})
	f := front(list)
	if !slices.Equal(f, []*candidate{list[0], list[1], list[2]}) || knee(f) != 1 {
		t.Errorf("found %d of a front, the knee %d; expected the first three and 1", len(f), knee(f))
	}
	sorted := slices.Clone(list)
	byFront(sorted)
	if !slices.Contains(sorted[:2], list[0]) || !slices.Contains(sorted[:2], list[2]) || sorted[2] != list[1] ||
		sorted[6] != list[6] || len(sorted) != 7 {
		t.Error("the ends of the front are not first, or what misses a limit not last")
	}
	if gains(scored([2]float64{0.995, 9.95}), f, 0.01) || !gains(scored([2]float64{0.9, 10}), f, 0.01) {
		t.Error("a gain below the indifference counts, or one above does not")
	}
}

// A search with two objectives finds a known front, from end to end: in at least 90 of 100 seeds, its points
// dominate 80 % of what the front dominates.
func TestKnownFront(t *testing.T) {
	found := 0
	for seed := range uint64(100) {
		runs := 0
		r := &race{knobs: 2, begins: firstGeneration, indifference: 0.01, order: byFront,
			rng: rand.New(rand.NewPCG(seed, 1)),
			decode: func(at []float64) (out []string, ok bool) {
				return []string{fmt.Sprintf("%.3f", at[0]), fmt.Sprintf("%.3f", at[1])}, true
			},
			more: func(n int) bool { return runs+n <= 600 },
			play: func(list []*candidate, _ float64, _ int) ([]Score, error) {
				out := make([]Score, len(list))
				runs += len(list)
				for i, c := range list { // the front has at[1] = 0: 1-sqrt(x) over x
					worse := 1 + c.at[1]
					out[i].Values = [2]float64{c.at[0], worse * (1 - math.Sqrt(c.at[0]/worse))}
				}
				return out, nil
			}}
		if err := r.search(nil); err != nil {
			t.Fatal(err)
		}
		area, from := 0.0, 1.0 // dominated, below (1, 1)
		f := front(r.best)
		for _, c := range slices.Backward(f) {
			if x := c.score.Values[0]; x < from {
				area += (from - x) * max(0, 1-c.score.Values[1])
				from = x
			}
		}
		if area > 0.8*2/3 {
			found++
		}
	}
	t.Logf("%d of 100 seeds", found)
	if found < 90 {
		t.Errorf("%d of 100 seeds find the front; expected 90", found)
	}
}
