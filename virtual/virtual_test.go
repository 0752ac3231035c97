package virtual

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/scenario"
)

func record(t *testing.T, s *scenario.Scenario) []flow.Event {
	t.Helper()
	var events []flow.Event
	if err := Run(s, flow.Func(func(e flow.Event) { events = append(events, e) }), nil); err != nil {
		t.Fatal(err)
	}
	return events
}

func outcomes(events []flow.Event) map[string]int {
	out := map[string]int{}
	for _, e := range events {
		if e.Step == flow.Finished {
			out[e.Details.Get("outcome").(string)]++
		}
	}
	return out
}

// Document 000 in virtual time: every step, in order.
func TestHeldFlow(t *testing.T) {
	s := scenario.Embedded()
	s.Workload.Requests, s.Workload.Concurrency = 50, 7
	events := record(t, s)
	if err := flow.CheckEdges(events, flow.HeldEdges()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"completed": 50}, outcomes(events)); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff(events, record(t, s)); d != "" {
		t.Fatal("the same seed gives another run: " + d)
	}
	for i := 1; i < len(events); i++ {
		if events[i].Time < events[i-1].Time {
			t.Fatalf("event %d is earlier than the one before", i)
		}
	}
}

func TestPlainFlow(t *testing.T) {
	s := scenario.Embedded()
	s.Pools[0].Flow = scenario.Plain
	s.Workload.Requests, s.Workload.Rate, s.Workload.Concurrency = 40, 100, 5
	events := record(t, s)
	if err := flow.CheckEdges(events, flow.PlainEdges()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"completed": 40}, outcomes(events)); d != "" {
		t.Fatal(d)
	}
}

// Prefill beyond the hold limit is a 504, and beyond the client's patience the
// client's own; nothing is left behind.
func TestLimits(t *testing.T) {
	s := scenario.Embedded()
	s.Workload.Requests, s.Workload.Concurrency = 20, 20
	s.Pools[0].EPP.HoldLimit = 50e6
	if d := cmp.Diff(map[string]int{"timed_out": 20}, outcomes(record(t, s))); d != "" {
		t.Fatal(d)
	}
	s = scenario.Embedded()
	s.Workload.Timeout = 1e6
	if d := cmp.Diff(map[string]int{"timed_out": 3}, outcomes(record(t, s))); d != "" {
		t.Fatal(d)
	}
}
