package stats

import (
	"math"
	"slices"
)

// latestKept is the number of values for percentiles.
const latestKept = 512

// latest holds the newest values, for exact percentiles.
type latest struct {
	values []float64
	next   int
	sorted []float64 // the values, for quantiles; empty after a new value
}

func (l *latest) add(v float64) {
	l.sorted = l.sorted[:0]
	if len(l.values) < latestKept {
		l.values = append(l.values, v)
		return
	}
	l.values[l.next] = v
	l.next = (l.next + 1) % latestKept
}

// quantile returns the smallest value that at least the part q of all values does not exceed.
func (l *latest) quantile(q float64) float64 {
	if len(l.sorted) == 0 {
		l.sorted = append(l.sorted, l.values...)
		slices.Sort(l.sorted)
	}
	return l.sorted[max(1, int(math.Ceil(q*float64(len(l.sorted)))))-1]
}

// latency returns the latency that the part q of the requests does not exceed, in seconds. It is exact for requests
// that ended. With fake metrics alone, it is estimated from their histogram.
func (s *Stats) latency(q float64) float64 {
	if len(s.latest.values) > 0 {
		return s.latest.quantile(q)
	}
	return s.e2e.quantile(q)
}
