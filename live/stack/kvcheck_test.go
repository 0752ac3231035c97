package stack

import (
	"context"
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/report"
)

// The comparison finds every kind of error of an index, because it asks the engines and does not use their events.
func TestWrongIndexIsFoundOut(t *testing.T) {
	t.Parallel()
	s := cacheScenario(t, "msgpack", true)
	s.Workload.Requests = 6
	r := start(t, s, nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Load(ctx); err != nil {
		t.Fatal(err)
	}
	all := func(what string, ok func(c report.IndexSummary) bool) {
		t.Helper()
		var last []report.IndexSummary
		r.until(what, func() bool {
			last = r.askManager(ctx, r.checkKV())
			return len(last) == 2 && ok(last[0]) && ok(last[1])
		})
	}
	all("the union", func(c report.IndexSummary) bool { return c.OK() && c.Missing+c.Extra == 0 && c.Blocks > 0 })

	server := 0
	for len(r.engineBlocks()[server]) == 0 {
		server++
	}
	lie := r.kv.list[server].Publisher
	held := r.engineBlocks()[server]
	lie.Publish(kv.Event{Kind: kv.Removed, Hashes: held[:1], Medium: kv.MediumGPU, Group: kv.NoGroup})
	all("one missing", func(c report.IndexSummary) bool { return !c.OK() && c.Missing == 1 && c.Extra == 0 })
	lie.Publish(kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{4711}, Tokens: make([]uint32, 16), BlockTokens: 16,
		Medium: kv.MediumGPU, Group: kv.NoGroup})
	all("one too many", func(c report.IndexSummary) bool { return !c.OK() && c.Missing == 1 && c.Extra == 1 })
}

// Blocks beyond the configured size of an index are no error, and a note says so.
func TestSmallIndexIsExcused(t *testing.T) {
	t.Parallel()
	for parameters, excuse := range map[string]string{
		"indexerConfig: {kvBlockIndexConfig: {inMemoryConfig: {size: 7}}}": "it keeps at most 7 blocks",
		"tokenProcessorConfig: {blockSizeTokens: 24}": "the engines' blocks have 16 tokens, the " +
			"index's 24",
		"tokenProcessorConfig: {hashSeed: other}":    "",
		"tokenProcessorConfig: {blockSizeTokens: 8}": "",
	} {
		t.Run(parameters, func(t *testing.T) {
			t.Parallel()
			s := cacheScenario(t, "msgpack", false)
			s.Workload.Requests = 6
			s.Pools[0].EPP.Config.Text = fmt.Appendf(nil, `
plugins:
- {type: token-producer, parameters: {modelName: llama-3.1-8b, vllm: {url: "http://model-server:8000"}}}
- {type: endpoint-notification-source}
- {type: precise-prefix-cache-producer, parameters: {%s}}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: prefix-cache-scorer, weight: 1}]}
dataLayer: {sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]}
`, parameters)
			r := start(t, s, nil)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := r.Load(ctx); err != nil {
				t.Fatal(err)
			}
			checks := r.Stack.CheckKV(ctx)
			if len(checks) != 1 || checks[0].Blocks == 0 || !checks[0].OK() || len(excuse) > len(checks[0].Excuse) ||
				checks[0].Excuse[:len(excuse)] != excuse || excuse == "" && checks[0].Excuse != "" {
				t.Errorf("%+v, expected the excuse %q", checks, excuse)
			}
		})
	}
}
