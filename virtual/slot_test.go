package virtual

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// Clients who leave at one moment have all left before a request arrives at that moment, which finds their places
// free.
func TestClientsLeaveBeforeOthersArrive(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]string{"timed_out": "timeout: 1s",
		"client_left": "timeout: 1h, leaving: {after: 1s, rate: 100%}"} {
		s, err := scenario.Parse("x.yaml", fmt.Appendf(nil, `apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: a
  replicas: 1
  modelServer: {prefill: 10s}
workload: {requests: 4, concurrency: 2, %s}
`, how))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range recorded(t, s) {
			switch {
			case e.Time != machine.Second || e.Hop != record.Client:
			case e.Step == record.Finished:
				got = append(got, "gone")
			case e.Step == record.RequestSent:
				got = append(got, "sent")
			}
		}
		if d := cmp.Diff([]string{"gone", "gone", "sent", "sent"}, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
