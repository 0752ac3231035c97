// Package order sorts the events of a live run, which many goroutines report, by time.
package order

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// maxPending bounds the events that wait for a slow reader (a pipe, a disk). Beyond it, Record waits.
const maxPending = 1 << 18

// Window is how long an event waits for earlier ones that other goroutines are about to record.
const Window = 20 * time.Millisecond

// Stream receives events from the goroutines of every hop, and passes them to a reader in the order of time, from one
// goroutine. Events wait for Window for earlier ones.
//
// Record is safe for concurrent use, and returns at once unless the reader is far behind.
type Stream struct {
	to     record.Recorder
	clock  func() machine.Time
	mu     sync.Mutex
	room   sync.Cond
	wait   []record.Event
	closed bool
	stop   chan struct{}
	drain  chan func()
	done   chan struct{}
	after  func() // called after each batch
}

// New returns a stream to a reader, which need not be safe for concurrent use. The stream calls after at the end of
// each batch. clock is the run's. Close the stream to pass the last events on.
func New(to record.Recorder, clock func() machine.Time, after func()) *Stream {
	o := &Stream{to: to, clock: clock, stop: make(chan struct{}), drain: make(chan func()),
		done: make(chan struct{}), after: after}
	o.room.L = &o.mu
	go o.loop()
	return o
}

// Record queues an event.
func (o *Stream) Record(e record.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.wait) >= maxPending && !o.closed {
		o.room.Wait()
	}
	if !o.closed {
		o.wait = append(o.wait, e)
	}
}

// Drain passes the queued events on, and calls then before the reader gets later ones.
func (o *Stream) Drain(then func()) {
	drained := make(chan struct{})
	o.drain <- func() {
		defer close(drained)
		then()
	}
	<-drained
}

// Close passes the queued events on. Later events are lost.
func (o *Stream) Close() {
	close(o.stop)
	<-o.done
}

func (o *Stream) loop() {
	defer close(o.done)
	tick := time.NewTicker(Window / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			o.pass(o.clock() - machine.FromDuration(Window))
		case then := <-o.drain:
			o.pass(o.clock())
			then()
		case <-o.stop:
			o.pass(machine.Never)
			return
		}
	}
}

// pass passes every event up to a time on.
func (o *Stream) pass(until machine.Time) {
	o.mu.Lock()
	machine.SortStableFunc(o.wait, func(a, b record.Event) int { return cmp.Compare(a.Time, b.Time) })
	n, _ := slices.BinarySearchFunc(o.wait, until, func(e record.Event, t machine.Time) int {
		if e.Time <= t {
			return -1
		}
		return 1
	})
	o.closed = until == machine.Never
	due := slices.Clone(o.wait[:n])
	o.wait = slices.Delete(o.wait, 0, n)
	o.room.Broadcast()
	o.mu.Unlock()
	for _, e := range due {
		o.to.Record(e)
	}
	if n > 0 {
		o.after()
	}
}
