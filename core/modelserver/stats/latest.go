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
}

func (l *latest) add(v float64) {
	if len(l.values) < latestKept {
		l.values = append(l.values, v)
		return
	}
	l.values[l.next] = v
	l.next = (l.next + 1) % latestKept
}

// quantile returns the smallest value that at least the part q of all values does not exceed. For a high q, it sorts
// only the few values above.
func (l *latest) quantile(q float64) float64 {
	greatest := len(l.values) - max(1, int(math.Ceil(q*float64(len(l.values))))) + 1
	var room [latestKept/64 + 1]float64
	top := room[:0]
	for _, v := range l.values {
		if len(top) == greatest && v <= top[0] {
			continue
		}
		i, _ := slices.BinarySearch(top, v)
		if len(top) < greatest {
			top = slices.Insert(top, i, v)
			continue
		}
		copy(top, top[1:i])
		top[i-1] = v
	}
	return top[0]
}

// latency returns the latency that the part q of the requests does not exceed, in seconds. It is exact for requests
// that ended. With fake metrics alone, it is estimated from their histogram.
func (s *Stats) latency(q float64) float64 {
	if len(s.latest.values) > 0 {
		return s.latest.quantile(q)
	}
	return s.e2e.quantile(q)
}
