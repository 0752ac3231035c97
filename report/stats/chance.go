package stats

import (
	"cmp"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// P returns how often chance alone moves an estimate of 0 at least as far as Value, in either direction, by Student's
// t: from 0 to 1, and 1 for the value 0.
func (i Interval) P() float64 {
	switch {
	case i.Value == 0:
		return 1
	case i.SE == 0:
		return 0
	}
	t, v := i.Value/i.SE, float64(i.Freedom)
	return mathext.RegIncBeta(v/2, 0.5, v/(v+t*t))
}

// Holm corrects the p-values of several tests for their number (Holm, 1979). Chance alone makes any corrected value
// fall below a level at most as often as that level says, however the tests depend on each other.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	out, most := make([]float64, len(p)), 0.0
	for rank, i := range order {
		most = max(most, min(1, p[i]*float64(len(p)-rank)))
		out[i] = most
	}
	return out
}
