package punctual

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/gate"
)

// TestTimersRing resets and stops timers at random. Each timer that is set fires once, and not early. A stopped timer
// does not fire.
func TestTimersRing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	rang := make(chan int, 1000)
	const timers = 200
	var notBefore [timers]atomic.Int64
	all := make([]*Timer, timers)
	for i := range all {
		wait := time.Hour // until it is reset below
		all[i] = AfterFunc(wait, func() {
			if early := time.Duration(notBefore[i].Load()) - time.Since(start); early > 0 {
				t.Errorf("timer %d rang %v too early", i, early)
			}
			rang <- i
		})
		notBefore[i].Store(int64(wait))
	}
	expected := map[int]bool{}
	for i, timer := range all {
		for range r.IntN(3) {
			timer.Reset(time.Hour + time.Duration(r.IntN(1000)))
		}
		if r.IntN(3) == 0 {
			if !timer.Stop() {
				t.Errorf("timer %d was not set", i)
			}
			continue
		}
		wait := time.Duration(r.IntN(20_000)) * time.Microsecond
		notBefore[i].Store(int64(time.Since(start) + wait))
		if !timer.Reset(wait) {
			t.Errorf("timer %d was not set", i)
		}
		expected[i] = true
	}
	for len(expected) > 0 {
		i := <-rang
		if !expected[i] {
			t.Errorf("timer %d rang once too often", i)
		}
		delete(expected, i)
	}
	for i, timer := range all {
		if timer.Stop() {
			t.Errorf("timer %d is still set", i)
		}
	}
	if left := kept(all); left > 0 {
		t.Errorf("%d timers are kept that will not fire", left)
	}
}

var start = time.Now()

// BenchmarkLateness measures how late timers fire in a process that does nothing else, alternating with Go's own
// timers.
func BenchmarkLateness(b *testing.B) {
	late := func(set func(time.Duration, func())) time.Duration {
		var all []time.Duration
		for range 200 {
			wait := 5*time.Millisecond + time.Duration(rand.IntN(int(3*time.Millisecond)))
			due, rang := time.Now().Add(wait), make(chan time.Duration)
			set(wait, func() { rang <- time.Since(due) })
			all = append(all, <-rang)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	for b.Loop() {
		gos := late(func(wait time.Duration, f func()) { time.AfterFunc(wait, f) })
		ours := late(func(wait time.Duration, f func()) { AfterFunc(wait, f) })
		b.ReportMetric(float64(gos.Microseconds()), "go-p50-us")
		b.ReportMetric(float64(ours.Microseconds()), "p50-us")
		limit := 1.5 // where Go's timers are punctual
		if onTime {
			limit = 0.5
		}
		gate.AtMost(b, float64(ours)/float64(gos), "lateness-ratio", limit)
	}
}
