package order

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Events that goroutines report out of order come out in order, once they are old enough that no earlier one can come;
// Close passes on the rest.
func TestOrdered(t *testing.T) {
	var got []machine.Time
	var now atomic.Int64
	all := make(chan bool)
	o := New(record.Func(func(e record.Event) {
		if got = append(got, e.Time); len(got) == 800 {
			close(all)
		}
	}), func() machine.Time { return machine.Time(now.Load()) }, func() {})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 100 {
				o.Record(record.Event{Time: machine.Time(800 - (j*8 + i))})
			}
		})
	}
	group.Wait()
	now.Store(int64(machine.Second))
	<-all
	o.Record(record.Event{Time: machine.Second}) // too young until Close
	o.Close()
	o.Record(record.Event{}) // too late, and harmless
	if len(got) != 801 || !slices.IsSorted(got) {
		t.Fatalf("%d events came through, in order: %v", len(got), slices.IsSorted(got))
	}
}
