package stack

import (
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
)

// Requests can name an InferenceObjective of the pool's: what has a negative
// priority is shed when the pool is saturated, in both times, and what has none
// is not.
func TestObjectivesLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for objective, want := range map[string]string{"gold": "completed", "sheddable": "overloaded"} {
		t.Run(objective, func(t *testing.T) {
			t.Parallel()
			live, played := liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    flow: plain
    modelServer: {prefill: 5s, interTokenLatency: 2ms, outputTokens: 5}
    epp:
      objectives: [{name: gold, priority: 10}, {name: sheddable, priority: -10}]
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
        - {type: concurrency-detector, parameters: {maxConcurrency: 1}}
        - {type: queue-scorer}
        schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
        saturationDetector: {pluginRef: concurrency-detector}
workload:
  requests: 2
  rate: 10
  concurrency: 2
  headers: [{name: x-llm-d-inference-objective, value: %s}, {name: x-never, value: "1", share: 0.0001%%}]
`, objective))
			for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
				for _, e := range events {
					if e.Step == record.Finished && e.Request == "req-1-000002" &&
						fmt.Sprint(e.Details.Get("outcome")) != want {
						t.Errorf("%s: %v, expected %s", when, e.Details, want)
					}
				}
			}
		})
	}
}
