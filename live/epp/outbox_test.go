package epp

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// stuckWire is Envoy's side of a stream on which no message gets through until it is opened.
type stuckWire struct {
	wire
	sending atomic.Int32
	open    sync.WaitGroup
}

func (w *stuckWire) SendMsg(any) error {
	w.sending.Add(1)
	w.open.Wait()
	return nil
}

// While Envoy does not read, a stream's deadline passes: sending holds neither the machine nor the queue. What the
// deadline brings about is sent after the rest.
func TestDeadlinePassesWhileSending(t *testing.T) {
	var now atomic.Int64
	clock := func() machine.Time { return machine.Time(now.Load()) }
	k := picking(t, "plugins: [{type: random-picker}]", 1, func(o *PickingOptions) {
		o.Now = clock
		o.Stream = stream.Config{Hold: true, Deadline: 10 * machine.Second, HoldLimit: 60 * machine.Second,
			MetadataBytes: 8}
	})
	w := new(stuckWire)
	w.open.Add(1)
	c := newServed(&Server{o: Options{Now: clock}}, k, w, t.Context())
	defer c.drive.Stop()
	open := sync.OnceFunc(w.open.Done)
	defer open()
	c.send(stream.Message{Kind: stream.Headers, Head: chat(1)})
	c.send(stream.Message{Kind: stream.Body, Body: []byte(hello), End: true})
	var asked sync.WaitGroup
	asked.Go(c.ask)
	eventually.Is(t, "a message on its way", func() bool { return w.sending.Load() > 0 })
	var answered atomic.Bool
	go func() {
		c.drive.With(func(machine.Time, *machine.Effects[stream.Effect]) {
			at, _ := c.machine.Next()
			now.Store(int64(at))
		})
		c.drive.With(func(machine.Time, *machine.Effects[stream.Effect]) {
			answered.Store(c.machine.Result() == stream.Answered)
		})
	}()
	eventually.Is(t, "the hold to end while Envoy does not read", answered.Load)
	before := w.sending.Load()
	open()
	asked.Wait()
	if err := c.out.flush(); err != nil || before != 1 || w.sending.Load() < 2 {
		t.Errorf("%d messages before Envoy read, %d in all: %v", before, w.sending.Load(), err)
	}
}
