package stats

import (
	"math"
	"slices"
)

// latestKept is how many values percentiles are taken of.
const latestKept = 512

// latest is the newest values, of which percentiles are exact.
type latest struct {
	values []float64
	next   int
	sorted []float64 // of values, once somebody has asked
}

func (l *latest) add(v float64) {
	asked := len(l.sorted) > 0
	if asked {
		i, _ := slices.BinarySearch(l.sorted, v)
		l.sorted = slices.Insert(l.sorted, i, v)
	}
	if len(l.values) < latestKept {
		l.values = append(l.values, v)
		return
	}
	if asked {
		i, _ := slices.BinarySearch(l.sorted, l.values[l.next])
		l.sorted = slices.Delete(l.sorted, i, i+1)
	}
	l.values[l.next] = v
	l.next = (l.next + 1) % latestKept
}

// quantile is the smallest value that the part q of all is not above.
func (l *latest) quantile(q float64) float64 {
	if len(l.sorted) == 0 {
		l.sorted = append(l.sorted, l.values...)
		slices.Sort(l.sorted)
	}
	return l.sorted[max(0, int(math.Ceil(q*float64(len(l.sorted))))-1)]
}

// p99 is the time that 99 of 100 requests took at most: of those that ended, or
// where there are only made-up metrics, estimated from their histogram.
func (s *Stats) p99() float64 {
	if len(s.latest.values) > 0 {
		return s.latest.quantile(0.99)
	}
	return s.e2e.quantile(0.99)
}
