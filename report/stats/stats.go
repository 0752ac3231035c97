// Package stats says how sure a simulation's estimates are. What a queue does to
// one request it does to the next ones, too, so formulas for independent samples
// promise far too much: here a run is cut into sections that are long enough to
// differ by chance only, and the spread of the sections' own values is the spread
// of the whole. For means this is the method of batch means, for percentiles
// sectioning (Asmussen and Glynn, Stochastic Simulation, 2007, III.4 and III.5).
package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// Confidence is how often an interval holds what is true.
const Confidence = 0.95

// T is the factor of a two-sided interval: the quantile of Student's t with so
// many degrees of freedom, at least 1.
func T(confidence float64, freedom int) float64 {
	v := float64(freedom)
	x := mathext.InvRegIncBeta(v/2, 0.5, 1-confidence)
	return math.Sqrt(v * (1 - x) / x)
}

// Interval is an estimate and the range that holds what is true.
type Interval struct {
	Value, Low, High float64
	// SE is the standard error of Value, with so many degrees of freedom.
	SE      float64
	Freedom int
}

// Around is the interval around a value that was estimated from everything,
// from what each of two or more sections comes to by itself.
func Around(value float64, sections []float64) Interval {
	sum := 0.0
	for _, s := range sections {
		sum += (s - value) * (s - value)
	}
	k := float64(len(sections))
	i := Interval{Value: value, SE: math.Sqrt(sum / (k - 1) / k), Freedom: len(sections) - 1}
	half := T(Confidence, i.Freedom) * i.SE
	i.Low, i.High = value-half, value+half
	return i
}

// Mean is the mean of one or more values.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Quantile is the p-quantile of one or more sorted values: the smallest that
// at least this part of them does not exceed.
func Quantile[N ~int64 | ~float64](sorted []N, p float64) N {
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Dependent tells whether sections follow from one another, so that their spread
// says too little: the correlation of each with the next is above what one in
// twenty series of independent ones has.
func Dependent(sections []float64) bool {
	mean, with, own := Mean(sections), 0.0, 0.0
	for i, s := range sections {
		own += (s - mean) * (s - mean)
		if i > 0 {
			with += (s - mean) * (sections[i-1] - mean)
		}
	}
	return own > 0 && with/own > 1.645/math.Sqrt(float64(len(sections)))
}

// WarmUp is how many of a series' first values to leave out by MSER-5 (White,
// Cobb and Spratt, 2000): the cut, among the first half, that leaves the surest
// mean of means of five. Steady is false where the best cut is at the end of
// where it is looked for: a series that never settles.
func WarmUp(series []float64) (cut int, steady bool) {
	const group = 5
	var means []float64
	for part := range slices.Chunk(series, group) {
		means = append(means, Mean(part))
	}
	if len(means) < 4 {
		return 0, true
	}
	// From the end, so that sums grow and nothing is taken away from them. By
	// Welford, which keeps its digits where the values hardly differ.
	best, mean, squares := math.Inf(1), 0.0, 0.0
	for d := len(means) - 1; d >= 0; d-- {
		n := float64(len(means) - d)
		delta := means[d] - mean
		mean += delta / n
		squares += delta * (means[d] - mean)
		if d <= len(means)/2 {
			if x := squares / (n * n); x <= best*(1+1e-12) {
				best, cut = x, d
			}
		}
	}
	return min(cut*group, len(series)), cut < len(means)/2-len(means)/20
}

// Slope is by how much a series grows from each value to the next, by least squares,
// and the factor by which that is above its standard error.
func Slope(series []float64) (slope, sure float64) {
	n := float64(len(series))
	if n < 3 {
		return 0, 0
	}
	mid, mean := (n-1)/2, Mean(series)
	xy, xx := 0.0, 0.0
	for i, y := range series {
		x := float64(i) - mid
		xy += x * (y - mean)
		xx += x * x
	}
	slope = xy / xx
	rest := 0.0
	for i, y := range series {
		e := y - mean - slope*(float64(i)-mid)
		rest += e * e
	}
	if rest == 0 {
		return slope, math.Copysign(math.Inf(1), slope)
	}
	return slope, slope / math.Sqrt(rest/(n-2)/xx)
}
