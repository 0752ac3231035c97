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
}

func (l *latest) add(v float64) {
	if len(l.values) < latestKept {
		l.values = append(l.values, v)
		return
	}
	l.values[l.next] = v
	l.next = (l.next + 1) % latestKept
}

// quantile is the smallest value that the part q of all is not above. Of a high
// one few values are greater: those alone are put in order.
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

// latency is the time that the part q of the requests took at most, in seconds: of those that
// ended, or where there are only made-up metrics, estimated from their histogram.
func (s *Stats) latency(q float64) float64 {
	if len(s.latest.values) > 0 {
		return s.latest.quantile(q)
	}
	return s.e2e.quantile(q)
}
