// Package stats computes how sure a simulation's estimates are. A queue affects successive requests alike, so formulas
// for independent samples promise far too much. Here a run is cut into sections, and the spread of the sections' values
// gives the spread of the whole: batch means for means, sectioning for percentiles (Asmussen and Glynn, Stochastic
// Simulation, 2007, III.4 and III.5). Two corrections keep the promise in short and skewed runs: one for skewness
// (Willink, 2005, as in Skart by Tafazzoli, Wilson, Lada and Steiger, 2011), and one for how few independent
// observations the run amounts to.
package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// Confidence is how often an interval contains the true value.
const Confidence = 0.95

// T returns the factor of a two-sided interval: the quantile of Student's t with so many degrees of freedom, at least
// 1.
func T(confidence float64, freedom int) float64 {
	v := float64(freedom)
	x := mathext.InvRegIncBeta(v/2, 0.5, 1-confidence)
	return math.Sqrt(v * (1 - x) / x)
}

// Interval is an estimate and the range that contains the true value.
type Interval struct {
	Value, Low, High float64
	// SE is the standard error of Value, and Freedom its degrees of freedom.
	SE      float64
	Freedom int
}

// Widened returns the factor by which the variance of an interval grows if a run amounts to so many independent
// observations. Sections of such a run depend on each other, so their spread is too small, and the estimate of the
// run's memory is too short itself. The factor is calibrated on M/M/1 queues from ρ = 0.5 to 0.9, with 2,000 requests
// and more (docs/decide.md).
func Widened(independent float64) float64 { return 1 + 60/independent + 60/independent*60/independent }

// Around returns the interval around a value that was estimated from all data, from the values of two or more sections.
// widened is the factor by which the variance grows (Widened), 1 if the sections are independent runs.
func Around(value float64, sections []float64, widened float64) Interval {
	squares, cubes := 0.0, 0.0
	mean := Mean(sections)
	for _, s := range sections {
		squares += (s - value) * (s - value)
		cubes += (s - mean) * (s - mean) * (s - mean)
	}
	k := float64(len(sections))
	i := Interval{Value: value, Low: value, High: value, Freedom: len(sections) - 1}
	if squares == 0 {
		return i
	}
	i.SE = math.Sqrt(squares / (k - 1) / k * widened)
	skew := 0.0 // the skewness of few values is mostly chance
	if len(sections) >= fewestToSkew {
		skew = k * cubes / ((k - 1) * (k - 2)) / math.Pow(squares/(k-1), 1.5)
	}
	t := T(Confidence, i.Freedom)
	i.Low, i.High = value-i.SE*skewed(t, skew/(6*math.Sqrt(k))), value-i.SE*skewed(-t, skew/(6*math.Sqrt(k)))
	return i
}

// fewestToSkew is the number of sections from which on the skewness counts.
const fewestToSkew = 10

// skewed transforms a quantile of Student's t for the mean of skewed values (Willink, 2005). b is a sixth of their
// skewness over the root of their number.
func skewed(t, b float64) float64 {
	if math.Abs(b) < 1e-6 {
		return t
	}
	return (math.Cbrt(1+6*b*(t-b)) - 1) / (2 * b)
}

// sectionsOf is how many sections a series is cut into for its interval.
const sectionsOf = 20

// Independent returns how many independent observations a series amounts to: its length over its integrated
// autocorrelation time. The sum goes to the first lag that is five such times away (Sokal, 1997), and at least over a
// section of an interval, because slow changes hide in the noise of fast ones and still make sections depend on each
// other. The result is at most the length of the series.
func Independent(series []float64) float64 {
	n, mean := len(series), Mean(series)
	at := func(lag int) (sum float64) {
		for i := lag; i < n; i++ {
			sum += (series[i] - mean) * (series[i-lag] - mean)
		}
		return sum
	}
	variance := at(0)
	if variance <= 1e-18*mean*mean*float64(n) { // constant except for rounding
		return float64(n)
	}
	time := 1.0
	for lag := 1; lag < n/2 && (lag <= n/sectionsOf || float64(2*lag) < 5*time); lag++ {
		time += 2 * at(lag) / variance
	}
	return float64(n) / max(time, 1)
}

// Mean returns the mean of one or more values.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Quantile returns the p-quantile of one or more sorted values: the smallest that at least this share of them does not
// exceed.
func Quantile[N ~int64 | ~float64](sorted []N, p float64) N {
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// WarmUp returns how many of the first values of a series to leave out. A run begins empty, so the first cut is where
// the series first reaches the mean of its second half. MSER-5 (White, Cobb and Spratt, 2000) cuts further, but only if
// the part to cut differs from the rest by more than chance. A cut that follows chance removes the peaks that a run
// happens to begin with, and the rest is too low.
func WarmUp(series []float64) (cut int) {
	level := Mean(series[len(series)/2:])
	for cut < len(series)/2 && series[cut] < level {
		cut++
	}
	rest := series[cut:]
	more := mser(rest)
	if more == 0 {
		return cut
	}
	begin, settled := rest[:more], rest[more:]
	mean, squares := Mean(settled), 0.0
	for _, v := range settled {
		squares += (v - mean) * (v - mean)
	}
	n := float64(len(settled))
	variance := squares / n / Independent(settled) * (1 + n/float64(len(begin))) // of the difference of the means
	if math.Abs(Mean(begin)-mean) > surely*math.Sqrt(variance) {
		cut += more
	}
	return cut
}

// surely is how many standard errors the begin of a run has to differ from the rest to be cut off. Near saturation,
// chance alone makes peaks of ten, because the values after a peak show too little of how high peaks are.
const surely = 14

// mser returns the cut, in the first half of a series, that leaves the mean with the least variance, of means of five
// values.
func mser(series []float64) (cut int) {
	const group = 5
	var means []float64
	for part := range slices.Chunk(series, group) {
		means = append(means, Mean(part))
	}
	if len(means) < 4 {
		return 0
	}
	// Sums grow from the end, without subtraction. Welford's method keeps its digits where the values hardly differ.
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
	return min(cut*group, len(series))
}

// Spread returns the variance of the means of k sections of a series.
func Spread(series []float64, k int) float64 {
	n, sum, squares := len(series), 0.0, 0.0
	for i := range k {
		m := Mean(series[i*n/k : (i+1)*n/k])
		sum += m
		squares += m * m
	}
	return squares/float64(k) - sum/float64(k)*sum/float64(k)
}

// Slope returns the growth of a series per value, by least squares, and how many standard errors it is above 0.
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
