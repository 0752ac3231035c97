package flowcontrol_test

import (
	"fmt"
	"strconv"
	"testing"

	. "github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

func benchController(b *testing.B, detector, fairness string, endpoints int) *driver {
	config := DefaultConfig()
	config.Detector.Kind = detector
	config.DefaultBand.Fairness.Kind = fairness
	config.DefaultBand.MaxRequests = 1 << 40
	c, err := newDriver(config)
	if err != nil {
		b.Fatal(err)
	}
	loads := make([]Load, endpoints)
	for i := range loads {
		loads[i] = Load{Scraped: true, UpdatedAt: machine.Never / 2}
	}
	c.Input(0, Pool{loads})
	return c
}

// One request through an unsaturated pool: arrival, dispatch, placed, done,
// with the load of its endpoint changing twice.
func BenchmarkPassThrough(b *testing.B) {
	for _, detector := range []string{UtilizationDetectorType, ConcurrencyDetectorType} {
		for _, endpoints := range []int{16, 1024} {
			b.Run(fmt.Sprintf("%s/%d", detector, endpoints), func(b *testing.B) {
				c := benchController(b, detector, GlobalStrict, endpoints)
				now := machine.Time(0)
				left := 0
				sink := func(Effect) { left++ }
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					now += 10 * machine.Microsecond
					id := RequestID(i)
					l := Load{Scraped: true, UpdatedAt: machine.Never / 2, Waiting: i % 3}
					c.Input(now, Arrive{ID: id, FairnessID: "default-flow", Bytes: 1000})
					c.Advance(now, sink)
					l.Requests = 1
					c.Input(now, LoadChanged{i % endpoints, l})
					c.Input(now, Placed{id})
					l.Requests = 0
					c.Input(now, LoadChanged{i % endpoints, l})
					c.Input(now, Done{ID: id})
					c.Next()
				}
				if left != b.N {
					b.Fatal(left, b.N)
				}
			})
		}
	}
}

// One more request for a queue of 10,000 in so many flows, and one out.
func BenchmarkQueue(b *testing.B) {
	for _, fairness := range []string{GlobalStrict, RoundRobin, ProgramAware} {
		for _, flows := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d", fairness, flows), func(b *testing.B) {
				c := benchController(b, ConcurrencyDetectorType, fairness, 1)
				names := make([]string, flows)
				for i := range names {
					names[i] = strconv.Itoa(i)
				}
				now, next := machine.Time(0), 0
				arrive := func() {
					c.Input(now, Arrive{ID: RequestID(next), FairnessID: names[next%flows], Bytes: 1000})
					next++
				}
				var running RequestID
				sink := func(e Effect) { running = e.ID }
				for range 100 + 10000 {
					arrive()
				}
				c.Advance(now, sink)
				b.ReportAllocs()
				for b.Loop() {
					now += machine.Millisecond
					c.Input(now, Done{ID: running})
					arrive()
					c.Advance(now, sink)
					c.Next()
				}
			})
		}
	}
}
