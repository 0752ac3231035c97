package epp

import (
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/live/extproc"
)

// outbox holds one stream's unsent messages to Envoy, in order. The machine's effects are queued while the machine is
// locked, and sent without the lock: an Envoy that does not read then keeps neither the deadline's timer nor the picker
// waiting. The stream's goroutine takes no further message before all is sent. So the queue holds the effects of one
// message and of a deadline, and the bytes that a message shares with its effects stay as they are.
type outbox struct {
	wire wire
	m    exposed // the server's

	turn  sync.Mutex // held by the sender
	sent  extproc.Out
	spare []queued

	mu    sync.Mutex
	queue []queued
	err   error     // of the first message that could not be sent; no other is
	since time.Time // when the request was whole
	begun bool      // the first message was queued
}

// queued is an effect that waits to be sent.
type queued struct {
	stream.Effect
	modes stream.Modes
}

// add queues an effect.
func (o *outbox) add(e *stream.Effect, modes stream.Modes) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, queued{*e, modes})
	if !o.begun && !o.since.IsZero() {
		o.m.add(metric.Processing, time.Since(o.since).Seconds())
	}
	o.begun = true
}

// whole notes that all of the request is here.
func (o *outbox) whole() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = time.Now()
	}
}

// failed returns the error of a broken stream, nil for a working one.
func (o *outbox) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// flush sends the queue, after a sender that is active already. It returns the first error of a send.
func (o *outbox) flush() error {
	o.turn.Lock()
	defer o.turn.Unlock()
	for list, err := o.take(); ; list, err = o.take() {
		if err != nil || len(list) == 0 {
			return err
		}
		for i := range list {
			o.sent = extproc.Out{Effect: &list[i].Effect, Modes: list[i].modes}
			if err := o.wire.SendMsg(&o.sent); err != nil {
				o.mu.Lock()
				o.err = err
				o.mu.Unlock()
				break
			}
		}
		clear(list)
		o.spare = list[:0]
	}
}

// take returns the queue; the caller holds turn.
func (o *outbox) take() (list []queued, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list, o.queue, o.spare = o.queue, o.spare, nil
	return list, o.err
}
