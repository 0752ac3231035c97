package stats

import "testing"

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
	if got := c.p99(); got != 1 {
		t.Errorf("p99 of a snapshot is %v, and has become that of later requests", got)
	}
}
