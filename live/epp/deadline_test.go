package epp

import (
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
)

// A timer for the picker's deadline that fires while the decision is being
// taken must not be heard as the timer for the hold that the decision began.
func TestOldAlarmDoesNotEndAHold(t *testing.T) {
	var now atomic.Int64 // the picker's own timers look at it, too
	clock := func() machine.Time { return machine.Time(now.Load()) }
	k := picking(t, "plugins: [{type: random-picker}]", 1, func(o *PickingOptions) {
		o.Now, o.Stream = clock,
			stream.Config{Hold: true, Deadline: 10 * machine.Second, HoldLimit: 60 * machine.Second, MetadataBytes: 8}
	})
	c := newServed(&Server{o: Options{Now: clock}}, k, deafWire{}, t.Context())
	c.send(stream.Message{Kind: stream.Headers, Head: chat(1)})
	c.send(stream.Message{Kind: stream.Body, Body: []byte(hello), End: true})
	defer c.drive.Stop()
	now.Store(int64(10*machine.Second - 1))
	c.ask()
	now.Add(1)
	if !c.machine.Holding() {
		t.Fatal("the request is not held")
	}
	ring := func() { c.drive.With(func(machine.Time, *machine.Effects[stream.Effect]) {}) }
	ring()
	if c.machine.Result() != stream.Running || !c.machine.Holding() {
		t.Fatalf("the hold ended at %v with %v, 60 s before its time", clock(), c.machine.Result())
	}
	at, _ := c.machine.Next()
	now.Store(int64(at))
	ring()
	if c.machine.Result() != stream.Answered {
		t.Fatalf("the hold did not end at its time: %v", c.machine.Result())
	}
}

// send passes a message to the machine.
func (c *served) send(m stream.Message) {
	c.in = m
	c.drive.Input(&c.in)
}

// deafWire is Envoy's side of a stream that nobody reads.
type deafWire struct{ wire }

func (deafWire) SendMsg(any) error { return nil }
