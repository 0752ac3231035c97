package virtual

import (
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/scenario"
)

// A dead server answers 503 until the picker has seen it fail three times, is
// then left out, and comes back with an empty cache.
func TestLostRank(t *testing.T) {
	s, err := scenario.Parse("x.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: a
  modelServer: {batching: continuous, coefficients: {step: 1s}, outputTokens: 2, numGPUBlocks: 4096, maxModelLen: 16384, tensorParallelSize: 2}
  incidents: [{at: 500ms, what: lose-rank, rank: 1, for: 3s}]
workload: {requests: 5, conversations: {turns: 5, thinkTime: 900ms}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, e := range record(t, s) {
		switch {
		case e.Step == flow.Rejected, e.Step == flow.Aborted:
			told = append(told, fmt.Sprint("server: ", e.Details.Get("reason")))
		case e.Step == flow.Answered:
			told = append(told, fmt.Sprint("epp: ", e.Details.Get("reason")))
		case e.Step == flow.Finished:
			told = append(told, fmt.Sprint(e.Details.Get("status")))
		}
	}
	want := "[server: The engine died. 500 server: The engine is dead: it crashed or lost a rank. 503 epp: ServiceUnavailable: screeners eliminated all endpoint candidates 503 epp: ServiceUnavailable: screeners eliminated all endpoint candidates 503 200]"
	if got := fmt.Sprint(told); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
