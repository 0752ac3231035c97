package virtual

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
)

// Each replica of a picker knows what it has decided itself, and nothing of what the other has: the
// same prompt is new to both. One that restarts knows nothing any more, and the other all that it knew.
func TestPickersKnowTheirOwn(t *testing.T) {
	t.Parallel()
	events := recorded(t, parsed(t, `
pools:
- name: a
  replicas: 3
  modelServer: {batching: continuous, accelerator: H100, outputTokens: 5}
  epp:
    replicas: 2
    config:
      apiVersion: llm-d.ai/v1alpha1
      kind: EndpointPickerConfig
      plugins: [{type: prefix-cache-scorer}, {type: max-score-picker}]
      schedulingProfiles: [{name: default, plugins: [{pluginRef: prefix-cache-scorer}, {pluginRef: max-score-picker}]}]
  incidents: [{at: 6500ms, what: restart-epp, replica: 0}]
workload: {requests: 12, rate: 1, arrivals: constant, prompt: {text: "`+strings.Repeat("The same words again. ", 40)+`"}}
`))
	known := map[string][]bool{} // whether each replica knew a server with the prompt, request by request
	asked := ""
	for _, e := range events {
		switch {
		case e.Hop == record.EPP && e.Step == record.RequestReceived:
			asked = fmt.Sprint(e.Details.Get("picker"))
		case e.Step == record.EndpointPicked:
			known[asked] = append(known[asked], strings.Contains(fmt.Sprint(e.Details.Get("scores")), "=1"))
		}
	}
	if got := known["a-epp-0"]; !slices.Equal(got, []bool{false, true, true, false, true, true}) {
		t.Errorf("the replica that restarts knew %v", got)
	}
	if got := known["a-epp-1"]; !slices.Equal(got, []bool{false, true, true, true, true, true}) {
		t.Errorf("the other knew %v", got)
	}
}

// A picker that takes its time decides with what is known in the end, and makes who comes meanwhile
// wait for a worker.
func TestPickersTakeTheirTime(t *testing.T) {
	t.Parallel()
	for workers, want := range map[int]string{1: "[1s 2s 3s 4s]", 2: "[1s 1s 2s 2s]"} {
		events := recorded(t, parsed(t, fmt.Sprintf(`
pools:
- name: a
  modelServer: {prefill: 1ms, interTokenLatency: 1ms, outputTokens: 2}
  epp: {serviceTime: 1s, workers: %d}
hops: {network: 0ms, envoy: 0ms, extProc: 0ms, sidecar: 0ms}
workload: {requests: 4, concurrency: 4}
`, workers)))
		var picked []string
		for _, e := range events {
			if e.Step == record.EndpointPicked {
				picked = append(picked, e.Time.String())
			}
		}
		if fmt.Sprint(picked) != want {
			t.Errorf("with %d workers they were decided about at %v, expected %s", workers, picked, want)
		}
	}
}
