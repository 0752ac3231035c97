package virtual

import (
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
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

// slow plays requests to two servers, the first of which becomes slow and says its metrics
// so late. picks are those of each from then on.
func slow(t *testing.T, delay string) (picks [2]int) {
	t.Helper()
	s, err := scenario.Parse("x.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: a
  replicas: 2
  modelServer: {batching: continuous, coefficients: {step: 10ms}, outputTokens: 20}
  epp:
    config:
      apiVersion: llm-d.ai/v1alpha1
      kind: EndpointPickerConfig
      plugins: [{type: queue-scorer}, {type: running-requests-size-scorer}]
      schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}, {pluginRef: running-requests-size-scorer}]}]
  incidents: [{at: 1s, what: slow-down, server: 0, factor: 10}, {at: 1s, what: slow-metrics, server: 0, delay: `+delay+`}]
workload: {requests: 200, rate: 40}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range record(t, s) {
		if e.Step == flow.EndpointPicked && e.Time > 2*machine.Second {
			picks[e.Endpoint[len("10.0.0.")]-'1']++
		}
	}
	return picks
}

// A picker keeps away from a slow server as far as it knows: what it goes by is the last
// page that came in time.
func TestSlowMetrics(t *testing.T) {
	if soon, never := slow(t, "1ms")[0], slow(t, "5s")[0]; 2*soon >= never {
		t.Errorf("the slow server was picked %d times where its metrics came soon, and %d where they never came", soon, never)
	}
}
