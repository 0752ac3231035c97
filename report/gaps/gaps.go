// Package gaps counts how long requests wait between one token and the next, in bounded memory: engines make far
// more gaps than requests.
package gaps

import (
	"math"
	"math/bits"
	"sync"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
)

// Gaps counts gaps between tokens by their length and time, as engines report them. Memory is bounded for any length of
// a run, and sections of a run can be separated. Values are right to 0.1 %. It is safe for concurrent use, and the
// counts do not depend on the order of the reports.
type Gaps struct {
	mu      sync.Mutex
	shift   uint // a window is 2^shift ns long
	windows []Counts
}

// Counts are counts of gaps by their length.
type Counts struct {
	low    int     // first bucket
	counts []int64 // by bucket, from low on
	// Total is the number of gaps.
	Total int64
}

const (
	// mostWindows bounds the windows. Beyond it, windows become twice as long.
	mostWindows = 128
	// A bucket is as wide as 1/512 of the power of two below its values.
	bucketBits = 9
	// Precision is the largest relative error of a value, from the middle of its bucket.
	Precision = 1.0 / (2 << bucketBits)
	// shortestWindow is the shift of the first windows, which are a millisecond long.
	shortestWindow = 20
)

// New returns an empty counter.
func New() *Gaps { return &Gaps{shift: shortestWindow} }

// bucketOf returns the bucket of a length in nanoseconds.
func bucketOf(ns uint64) int {
	if ns < 1<<bucketBits {
		return int(ns)
	}
	e := bits.Len64(ns) - 1 - bucketBits
	return e<<bucketBits + int(ns>>e)
}

// bucket returns the least length of a bucket, and that of the next bucket.
func bucket(i int) (from, to uint64) {
	if i < 1<<bucketBits {
		return uint64(i), uint64(i) + 1
	}
	e := i>>bucketBits - 1
	from = uint64(i&(1<<bucketBits-1)|1<<bucketBits) << e
	return from, from + 1<<e
}

// Gaps implements engine.Gaps.
func (g *Gaps) Gaps(s *engine.Schedule, from, steps, requests int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for steps > 0 {
		w, n := g.window(s.End(from+1)), steps
		if end := machine.Time(w+1) << g.shift; s.End(from+steps) >= end { // find the steps that end in the window
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

// window returns the index of a time's window.
func (g *Gaps) window(at machine.Time) int {
	for at>>g.shift >= mostWindows {
		for i := 0; i < len(g.windows); i += 2 {
			x := g.windows[i]
			if i+1 < len(g.windows) {
				x.Merge(&g.windows[i+1])
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
		g.windows = append(g.windows, Counts{})
	}
	return w
}

// add counts n gaps, so many times each. Each is longer than the one before by grow.
func (c *Counts) add(first, grow engine.Fixed, n int, times int64) {
	for n > 0 {
		b := bucketOf(uint64(first.Time()))
		in := n
		if _, to := bucket(b); grow > 0 {
			in = int(min(engine.Fixed(n), (engine.Fixed(to)<<engine.FixedShift-first+grow-1)/grow))
		}
		c.at(b, b)
		c.counts[b-c.low] += int64(in) * times
		c.Total += int64(in) * times
		first, n = first+grow*engine.Fixed(in), n-in
	}
}

// at allocates the buckets from one to another.
func (c *Counts) at(from, to int) {
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

// Merge adds other counts.
func (c *Counts) Merge(other *Counts) {
	if len(other.counts) == 0 {
		return
	}
	c.at(other.low, other.low+len(other.counts)-1)
	for i, n := range other.counts {
		c.counts[other.low-c.low+i] += n
	}
	c.Total += other.Total
}

// Quantile returns the p-quantile in seconds: the middle of the bucket of the smallest gap that at least this share of
// the gaps does not exceed. It is NaN without gaps.
func (c *Counts) Quantile(p float64) float64 {
	if c.Total <= 0 {
		return math.NaN()
	}
	rank, seen := max(int64(math.Ceil(float64(c.Total)*p)), 1), int64(0)
	for i, n := range c.counts {
		if seen += n; seen >= rank {
			from, to := bucket(c.low + i)
			return float64(from+to-1) / 2e9
		}
	}
	return math.NaN()
}

// Above returns the share of gaps whose bucket is above that of so many seconds.
func (c *Counts) Above(seconds float64) float64 {
	if c.Total <= 0 {
		return math.NaN()
	}
	over := int64(0)
	for i, n := range c.counts {
		if from, to := bucket(c.low + i); float64(from+to-1)/2e9 > seconds {
			over += n
		}
	}
	return float64(over) / float64(c.Total)
}

// Between returns the gaps of the windows whose middle lies between two times.
func (g *Gaps) Between(from, to machine.Time) *Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := new(Counts)
	for i := range g.windows {
		if middle := machine.Time(2*i+1) << g.shift / 2; middle >= from && middle < to {
			all.Merge(&g.windows[i])
		}
	}
	return all
}

// Mean returns the mean in seconds, NaN without gaps.
func (c *Counts) Mean() (mean float64) {
	for i, n := range c.counts {
		from, to := bucket(c.low + i)
		mean += float64(float64(n) * float64(from+to-1) / 2e9)
	}
	return mean / float64(c.Total)
}
