package stack

import (
	"context"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// indexed are a prefill and a decode server behind its sidecar, scored by the
// index of what they announce.
const indexed = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: m
    replicas: 1
    sidecar: routing
    disaggregation: {prefillReplicas: 1}
    modelServer:
      batching: continuous
      prefill: 2ms
      interTokenLatency: 1ms
      outputTokens: 8
      numGPUBlocks: 4096
      maxModelLen: 16384
      kvEvents: {format: msgpack, interval: 1ms}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
        - {type: token-producer, parameters: {modelName: m, vllm: {url: "http://model-server:8000"}}}
        - {type: endpoint-notification-source}
        - {type: precise-prefix-cache-producer, parameters: {tokenProcessorConfig: {blockSizeTokens: 16}, kvEventsConfig: {podDiscoveryConfig: {socketPort: 5557}}}}
        - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
        - {type: prefill-filter}
        - {type: decode-filter}
        - {type: max-score-picker}
        - {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 32}}
        - {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
        dataLayer: {sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]}
        schedulingProfiles:
        - {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: prefix-cache-scorer, weight: 2}, {pluginRef: max-score-picker}]}
        - {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: prefix-cache-scorer, weight: 2}, {pluginRef: max-score-picker}]}
`

// loseIndex ends the picker's index and begins an empty one, which dials the
// engines as a picker does that has just started.
func (r *rig) loseIndex() {
	r.t.Helper()
	victim{s: r.Pool}.LoseIndexes()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.awaitSubscribers(ctx); err != nil {
		r.t.Fatal(err)
	}
}

// indexIs waits until the picker's index says this of itself.
func (r *rig) indexIs(what string, ok func(report.IndexSummary) bool) {
	r.t.Helper()
	r.until(what, func() bool {
		checks := r.checkKV()
		return len(checks) == 1 && ok(checks[0])
	})
}

func whole(c report.IndexSummary) bool { return c.Blocks > 0 && c.Missing+c.Extra == 0 }

// The index is lost while engines still hold the blocks: requests still end whole, nothing is kept for them, and blocks
// that are stored later are in the index again.
func TestIndexLost(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("lost.yaml", []byte(indexed))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	say := func(word, decision string) {
		t.Helper()
		before := r.decisions()
		r.okay(r.post(chatPath, long(word)))
		r.settled()
		if got := strings.TrimSpace(strings.TrimPrefix(r.decisions(), before)); got != decision {
			t.Fatalf("%s: %s, expected %s", word, got, decision)
		}
	}
	say("old", "disaggregated")
	r.indexIs("the union", whole)
	say("old", "local")

	r.loseIndex()
	r.indexIs("empty", func(c report.IndexSummary) bool { return c.Missing == c.Blocks && c.Blocks > 0 })
	say("old", "local") // by the picker's own memory of what it sent where

	say("new", "disaggregated")
	r.indexIs("filling", func(c report.IndexSummary) bool { return c.Missing < c.Blocks && c.Extra == 0 })
	say("new", "local")
	r.settled()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is missing stays missing
	if checks := r.Stack.CheckKV(ctx); len(checks) != 1 || checks[0].Missing == 0 || !checks[0].OK() {
		t.Errorf("the check, as virtual time decides it, has no excuse: %+v", checks)
	}
}

// With replaySocketPort the index is complete again: the engines' publishers still have the events that they sent.
func TestIndexLostAndReplayed(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("replayed.yaml",
		[]byte(strings.Replace(indexed, "socketPort: 5557", "socketPort: 5557, replaySocketPort: 5558", 1)))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	r.okay(r.post(chatPath, long("old")))
	r.settled()
	r.indexIs("the union", whole)
	r.loseIndex()
	r.indexIs("the union again", whole)
	r.okay(r.post(chatPath, long("new")))
	r.settled()
	r.indexIs("the union still", whole)
	if checks := r.Stack.CheckKV(t.Context()); len(checks) != 1 || !checks[0].OK() || checks[0].Excuse != "" {
		t.Errorf("%+v", checks)
	}
}
