package virtual

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/scenario"
)

func playFaults(t *testing.T, fault, more string) (map[any]int, error) {
	t.Helper()
	s, err := scenario.Parse("x.yaml", fmt.Appendf(nil, `apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: a
  flow: held
  %s
  modelServer: {prefill: 10ms, faults: [{fault: %s, requests: [2, 3]}]}
workload: {requests: 5, timeout: 1s}
`, more, fault))
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
		outcomes, err := playFaults(t, c.fault, "replicas: 2")
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

// What needs a connection is not played quietly as nothing.
func TestFaultsOfConnections(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"refuse", "reset", "reset-after=2", "die-in-prefill", "end-before-part2", "no-body", "lose-kv", "stall", "status=204", "delay=1s;reset"} {
		if _, err := playFaults(t, fault, "replicas: 2"); err == nil || !strings.Contains(err.Error(), "wall time only") || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v", fault, err)
		}
	}
}
