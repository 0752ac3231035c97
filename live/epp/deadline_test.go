package epp

import (
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/stream"
)

// An alarm for the picker's deadline that rings while the decision is being
// taken must not be heard as the alarm for the hold that the decision began.
func TestOldAlarmDoesNotEndAHold(t *testing.T) {
	now := machine.Time(0)
	cfg := stream.Config{Hold: true, Deadline: 10 * machine.Second, HoldLimit: 60 * machine.Second, MetadataBytes: 8}
	c := &conversation{s: &Server{o: Options{Stream: cfg, Now: func() machine.Time { return now }}}, wire: deafWire{},
		machine: stream.New(cfg), cancel: func() {}, answered: true}
	head := header.Of(":method", "POST", ":path", "/v1/chat/completions", "x-request-id", "r")
	c.play(c.machine.Headers(0, stream.Modes{}, head, false))
	c.play(c.machine.Body(0, []byte(`{"model":"m"}`), true))
	defer func() { c.timer.Stop() }()
	now = 10 * machine.Second
	c.play(c.machine.Decided(now, stream.Decision{Endpoint: "127.0.0.1:1"}))
	if !c.machine.Holding() {
		t.Fatal("the request is not held")
	}
	c.deadline()
	if c.machine.Result() != stream.Running || !c.machine.Holding() {
		t.Fatalf("the hold ended at %v with %v, 60 s before its time", now, c.machine.Result())
	}
	now = c.wakeAt
	c.deadline()
	if c.machine.Result() != stream.Answered {
		t.Fatalf("the hold did not end at its time: %v", c.machine.Result())
	}
}

// deafWire is Envoy's side of a stream that nobody reads.
type deafWire struct {
	extprocv3.ExternalProcessor_ProcessServer
}

func (deafWire) Send(*extprocv3.ProcessingResponse) error { return nil }
