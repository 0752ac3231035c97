package stack

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
)

// Document 002's profiles in a run without endpoint statuses: the picker knows the server of a conversation and the
// load from its own decisions. A conversation begins by the profile prefill, continues by decode, and stays.
func TestDocument002ProfilesLiveAsVirtual(t *testing.T) {
	t.Parallel()
	live, played := bothTimes(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: m
    replicas: 3
    modelServer: {batching: continuous, prefill: 2ms, interTokenLatency: 1ms, outputTokens: 4, numGPUBlocks: 4096, maxModelLen: 16384}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
        - {type: conversation-profile-handler}
        - {type: session-prefix-scorer}
        - {type: qps-load-scorer, parameters: {maxQps: 100}}
        schedulingProfiles:
        - {name: prefill, plugins: [{pluginRef: qps-load-scorer}]}
        - {name: decode, plugins: [{pluginRef: session-prefix-scorer, weight: 2}, {pluginRef: qps-load-scorer}]}
workload: {requests: 24, concurrency: 3, conversations: {turns: 4, thinkTime: 1ms, sessionHeader: x-session-id}}
`, nil)
	for time, events := range map[string][]record.Event{"live": live, "virtual": played} {
		profiles, known, loaded, servers := map[string]int{}, 0, 0, map[string]bool{}
		for _, e := range events {
			if e.Step != record.EndpointPicked {
				continue
			}
			text, err := json.Marshal(e.Details.Get(record.Explanation))
			if err != nil {
				t.Fatal(err)
			}
			var why struct {
				Profiles []struct {
					Name      string
					Endpoints []struct {
						Picked bool
						Raw    []float64
					}
				}
			}
			if err := json.Unmarshal(text, &why); err != nil || len(why.Profiles) != 1 {
				t.Fatalf("%s: %v: %s", time, err, text)
			}
			p := why.Profiles[0]
			profiles[p.Name]++
			servers[fmt.Sprint(e.Endpoint)] = true
			for _, x := range p.Endpoints {
				if x.Picked && p.Name == "decode" && x.Raw[0] == 1 {
					known++
				}
				if qps := x.Raw[len(x.Raw)-1]; qps < 1 {
					loaded++
				}
			}
		}
		if profiles["prefill"] != 6 || profiles["decode"] != 18 || known != 18 {
			t.Errorf("%s: of 6 conversations with 4 requests each decisions were by %v, %d of them for the "+
				"conversation's own server", time, profiles, known)
		}
		if loaded == 0 || len(servers) < 2 {
			t.Errorf("%s: the load of %d endpoints was seen, and %d servers had requests", time, loaded, len(servers))
		}
	}
}
