package virtual

import (
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/scenario"
)

func playFaults(t *testing.T, flows, fault, more string) (map[any]int, error) {
	t.Helper()
	s, err := scenario.Parse("x.yaml", fmt.Appendf(nil, `apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: a
  flow: %s
  %s
  modelServer: {prefill: 10ms, faults: [{fault: %s, requests: [2, 3]}]}
workload: {requests: 5, timeout: 1s}
`, flows, more, fault))
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[any]int{}
	err = Run(s, flow.Func(func(e flow.Event) {
		if e.Step == flow.Finished {
			outcomes[e.Details.Get("outcome")]++
		}
	}), nil)
	return outcomes, err
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault string
		want  flow.Outcome
	}{
		{"status=503", flow.Unavailable},
		{"delay=500ms", flow.Completed},
		{"delay=2s", flow.TimedOut}, // the client leaves during the delay
		{"delay=500ms;status=429", flow.Overloaded},
	} {
		outcomes, err := playFaults(t, "held", c.fault, "replicas: 2")
		if err != nil {
			t.Fatal(err)
		}
		want := 2
		if c.want == flow.Completed {
			want = 5
		}
		if outcomes[string(c.want)] != want || outcomes[string(flow.Completed)] != 3 && want == 2 {
			t.Errorf("%s: %v", c.fault, outcomes)
		}
	}
}

// What happens to a connection, or in the middle of an answer.
func TestFaultsOfConnections(t *testing.T) {
	t.Parallel()
	for _, flows := range []string{"held", "plain"} {
		for _, c := range []struct {
			fault       string
			held, plain flow.Outcome
		}{
			{"refuse", flow.Unavailable, flow.Unavailable},
			{"reset", flow.Unavailable, flow.Unavailable},
			{"die-in-prefill", flow.Unavailable, flow.Unavailable},
			{"reset-after=0", flow.Broken, flow.Broken},
			{"reset-after=2", flow.Broken, flow.Broken},
			{"end-before-part2", flow.Violated, flow.Completed},
			{"no-body", flow.Unavailable, flow.Broken},
			{"status=204", flow.Unavailable, flow.Broken},
			{"stall", flow.TimedOut, flow.TimedOut},
			{"stall=3", flow.TimedOut, flow.TimedOut},
			{"lose-kv", flow.Completed, flow.Completed}, // nothing is fetched
			{"delay=1s;reset", flow.Unavailable, flow.Unavailable},
		} {
			outcomes, err := playFaults(t, flows, c.fault, "replicas: 2")
			if err != nil {
				t.Fatal(err)
			}
			want := c.held
			if flows == "plain" {
				want = c.plain
			}
			n := 2
			if want == flow.Completed {
				n = 5
			}
			if outcomes[string(want)] != n || outcomes[string(flow.Completed)] < 3 {
				t.Errorf("%s %s: %v, expected %d %s", flows, c.fault, outcomes, n, want)
			}
		}
	}
}
