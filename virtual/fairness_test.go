package virtual

import (
	"testing"

	"github.com/windtunnel/windtunnel/scenario"
)

// Flow control learns of the tokens that each request was served, which
// program-aware fairness shares out by.
func TestServiceIsSeen(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("test.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    flow: plain
    modelServer: {prefill: 20ms, interTokenLatency: 2ms, outputTokens: 5}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        featureGates: [flowControl]
        plugins: [{type: program-aware-fairness}, {type: queue-scorer}]
        schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
        flowControl: {defaultPriorityBand: {fairnessPolicyRef: program-aware-fairness}}
workload: {requests: 4, stream: false}
`))
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(s, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.run(nil); err != nil {
		t.Fatal(err)
	}
	programs := w.pools[0].pickers[0].m.FlowControl().Snapshot(w.now).Programs
	if len(programs) != 1 || programs[0].AttainedService < 4*5*2 {
		t.Errorf("service %+v, expected that of 4 requests of 5 tokens", programs)
	}
}
