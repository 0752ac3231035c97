package report

import (
	"math"
	"math/bits"
	"sync"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Gaps counts how long requests wait between one token and the next, as engines tell
// of it, by when they waited: so memory is bounded however long the run is, and
// sections of it can be told apart. Values are kept within 0.1 %. It is safe for
// concurrent use, and what it counted does not depend on the order in which it is told.
type Gaps struct {
	mu      sync.Mutex
	shift   uint // a window is 2^shift ns long
	windows []gapCounts
}

// gapCounts are counts by bucket, of those from low on.
type gapCounts struct {
	low    int
	counts []int64
	total  int64
}

const (
	// gapWindows bounds how many windows there are: twice as long ones, of more.
	gapWindows = 128
	// A bucket is as wide as 1/512 of the power of two below its values.
	gapBits = 9
	// gapPrecision is how far the middle of a bucket may be from what is in it.
	gapPrecision = 1.0 / (2 << gapBits)
	// shortestWindow is the first windows' shift: a millisecond.
	shortestWindow = 20
)

// NewGaps begins to count.
func NewGaps() *Gaps { return &Gaps{shift: shortestWindow} }

// bucketOf is the bucket of a span in nanoseconds.
func bucketOf(ns uint64) int {
	if ns < 1<<gapBits {
		return int(ns)
	}
	e := bits.Len64(ns) - 1 - gapBits
	return e<<gapBits + int(ns>>e)
}

// bucket is from where a bucket's spans are, and from where they are the next one's.
func bucket(i int) (from, to uint64) {
	if i < 1<<gapBits {
		return uint64(i), uint64(i) + 1
	}
	e := i>>gapBits - 1
	from = uint64(i&(1<<gapBits-1)|1<<gapBits) << e
	return from, from + 1<<e
}

// Gaps implements engine.Gaps.
func (g *Gaps) Gaps(s *engine.Schedule, from, steps, requests int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for steps > 0 {
		w, n := g.window(s.End(from+1)), steps
		if end := machine.Time(w+1) << g.shift; s.End(from+steps) >= end { // those that end in the window
			low, high := 1, steps
			for low < high {
				if m := (low + high + 1) / 2; s.End(from+m) < end {
					low = m
				} else {
					high = m - 1
				}
			}
			n = low
		}
		g.windows[w].add(s.Base+s.Grow*engine.Fixed(from), s.Grow, n, int64(requests))
		from, steps = from+n, steps-n
	}
}

// window is the number of the window of a time.
func (g *Gaps) window(at machine.Time) int {
	for at>>g.shift >= gapWindows {
		for i := 0; i < len(g.windows); i += 2 {
			x := g.windows[i]
			if i+1 < len(g.windows) {
				x.merge(&g.windows[i+1])
			}
			g.windows[i/2] = x
		}
		half := (len(g.windows) + 1) / 2
		clear(g.windows[half:])
		g.windows = g.windows[:half]
		g.shift++
	}
	w := int(at >> g.shift)
	for len(g.windows) <= w {
		g.windows = append(g.windows, gapCounts{})
	}
	return w
}

// add counts n spans, each longer than the one before by as much, so many times each.
func (c *gapCounts) add(first, grow engine.Fixed, n int, times int64) {
	for n > 0 {
		b := bucketOf(uint64(first.Time()))
		in := n
		if _, to := bucket(b); grow > 0 {
			in = int(min(engine.Fixed(n), (engine.Fixed(to)<<engine.FixedShift-first+grow-1)/grow))
		}
		c.at(b, b)
		c.counts[b-c.low] += int64(in) * times
		c.total += int64(in) * times
		first, n = first+grow*engine.Fixed(in), n-in
	}
}

// at makes room for buckets from one to another.
func (c *gapCounts) at(from, to int) {
	if len(c.counts) == 0 {
		c.low = from
	}
	if from < c.low {
		more := make([]int64, c.low-from, c.low-from+len(c.counts))
		c.counts, c.low = append(more, c.counts...), from
	}
	for to >= c.low+len(c.counts) {
		c.counts = append(c.counts, 0)
	}
}

func (c *gapCounts) merge(other *gapCounts) {
	if len(other.counts) == 0 {
		return
	}
	c.at(other.low, other.low+len(other.counts)-1)
	for i, n := range other.counts {
		c.counts[other.low-c.low+i] += n
	}
	c.total += other.total
}

// quantile is the p-quantile in seconds: the middle of the bucket of the smallest span
// that at least this part of them does not exceed. Not a number where there are none.
func (c *gapCounts) quantile(p float64) float64 {
	if c.total <= 0 {
		return math.NaN()
	}
	rank, seen := max(int64(math.Ceil(float64(c.total)*p)), 1), int64(0)
	for i, n := range c.counts {
		if seen += n; seen >= rank {
			from, to := bucket(c.low + i)
			return float64(from+to-1) / 2e9
		}
	}
	return math.NaN()
}

// between is the windows whose middle lies between two times.
func (g *Gaps) between(from, to machine.Time) *gapCounts {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := new(gapCounts)
	for i := range g.windows {
		if middle := machine.Time(2*i+1) << g.shift / 2; middle >= from && middle < to {
			all.merge(&g.windows[i])
		}
	}
	return all
}
