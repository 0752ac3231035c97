package virtual

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/scenario"
)

const lostIndex = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: pool
  model: m
  replicas: 2
  modelServer:
    batching: continuous
    prefill: 2ms
    interTokenLatency: 1ms
    kvEvents: {format: msgpack, interval: 1ms}
  incidents: [{at: 500ms, what: lose-index}]
  epp:
    config:
      apiVersion: llm-d.ai/v1alpha1
      kind: EndpointPickerConfig
      plugins:
      - {type: token-producer, parameters: {modelName: m, vllm: {url: "http://model-server:8000"}}}
      - {type: endpoint-notification-source}
      - {type: precise-prefix-cache-producer, parameters: {tokenProcessorConfig: {blockSizeTokens: 16}, kvEventsConfig: {podDiscoveryConfig: {socketPort: 5557}}}}
      - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
      - {type: max-score-picker}
      dataLayer: {sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]}
      schedulingProfiles:
      - {name: default, plugins: [{pluginRef: prefix-cache-scorer, weight: 2}, {pluginRef: max-score-picker}]}
workload: {requests: 40, rate: 40, prompt: {tokens: 64}}
`

// An index that is lost has what it had again where it asks publishers for it, as in wall time, and an excuse where
// it does not.
func TestLostIndexIsReplayed(t *testing.T) {
	for text, replayed := range map[string]bool{lostIndex: false,
		strings.Replace(lostIndex, "socketPort: 5557", "socketPort: 5557, replaySocketPort: 5558", 1): true} {
		s, err := scenario.Parse("lost.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		checks, err := Play(s, nil, Options{})
		if err != nil || len(checks) != 1 {
			t.Fatal(checks, err)
		}
		if c := checks[0]; c.Blocks == 0 || (c.Missing+c.Extra == 0) != replayed || !c.OK() {
			t.Errorf("replayed %t: %+v", replayed, c)
		}
	}
}
