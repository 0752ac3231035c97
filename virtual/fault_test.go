package virtual

import (
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
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
	err = Run(s, record.Func(func(e record.Event) {
		if e.Step == record.Finished {
			outcomes[e.Details.Get("outcome")]++
		}
	}), nil)
	return outcomes, err
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault string
		want  record.Outcome
	}{
		{"status=503", record.Unavailable},
		{"delay=500ms", record.Completed},
		{"delay=2s", record.TimedOut}, // the client leaves during the delay
		{"delay=500ms;status=429", record.Overloaded},
	} {
		outcomes, err := playFaults(t, "held", c.fault, "replicas: 2")
		if err != nil {
			t.Fatal(err)
		}
		want := 2
		if c.want == record.Completed {
			want = 5
		}
		if outcomes[string(c.want)] != want || outcomes[string(record.Completed)] != 3 && want == 2 {
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
			held, plain record.Outcome
		}{
			{"refuse", record.Unavailable, record.Unavailable},
			{"reset", record.Unavailable, record.Unavailable},
			{"die-in-prefill", record.Unavailable, record.Unavailable},
			{"reset-after=0", record.Broken, record.Broken},
			{"reset-after=2", record.Broken, record.Broken},
			{"end-before-part2", record.Violated, record.Completed},
			{"no-body", record.Unavailable, record.Broken},
			{"status=204", record.Unavailable, record.Broken},
			{"stall", record.TimedOut, record.TimedOut},
			{"stall=3", record.TimedOut, record.TimedOut},
			{"lose-kv", record.Completed, record.Completed}, // nothing is fetched
			{"delay=1s;reset", record.Unavailable, record.Unavailable},
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
			if want == record.Completed {
				n = 5
			}
			if outcomes[string(want)] != n || outcomes[string(record.Completed)] < 3 {
				t.Errorf("%s %s: %v, expected %d %s", flows, c.fault, outcomes, n, want)
			}
		}
	}
}
