package stats

import (
	"math"
	"slices"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Percentiles are values that there were, the newest ones.
func TestLatest(t *testing.T) {
	var l latest
	l.add(.0486)
	if got := l.quantile(.99); got != .0486 {
		t.Errorf("of one: %v", got)
	}
	for i := range 99 {
		l.add(float64(i))
	}
	if got := l.quantile(.99); got != 97 {
		t.Errorf("of a hundred: %v", got)
	}
	for range latestKept {
		l.add(.25)
	}
	if got := l.quantile(.99); got != .25 || len(l.values) != latestKept {
		t.Errorf("of %d newer ones: %v", len(l.values), got)
	}
}

// Whoever asks after every value gets what a sort of the newest ones says.
func TestLatestIsOfASort(t *testing.T) {
	t.Parallel()
	var l latest
	draw := machine.NewDraw(1, "test", "latest", 0)
	for n := range 3 * latestKept {
		l.add(float64(draw.Intn(300)))
		if n%5 != 0 {
			continue
		}
		want := slices.Sorted(slices.Values(l.values))
		for _, q := range []float64{0, .5, .9, .99, 1} {
			if got := l.quantile(q); got != want[max(1, int(math.Ceil(q*float64(len(want)))))-1] {
				t.Fatalf("after %d: %v of %v", n+1, got, q)
			}
		}
	}
}

// A snapshot's percentiles are of what had come by then, whatever comes next.
func TestSnapshotKeepsLatest(t *testing.T) {
	t.Parallel()
	var s Stats
	for range latestKept {
		s.latest.add(1)
	}
	c := s.Snapshot()
	for range latestKept {
		s.latest.add(2)
	}
	s.latest.add(3)
	if p50, p99 := s.latency(0.5), s.latency(0.999); p50 != 2 || p99 != 3 {
		t.Errorf("p50 %v and p99.9 %v, expected 2 and 3", p50, p99)
	}
	if got := c.latency(0.99); got != 1 {
		t.Errorf("p99 of a snapshot is %v, and has become that of later requests", got)
	}
}
