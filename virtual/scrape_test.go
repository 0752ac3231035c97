package virtual

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// loaded is a pool whose picker looks at what servers said last.
func loaded(t *testing.T, plugins, profile, sources string) []record.Event {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: llama-3.1-8b
    replicas: 4
    flow: plain
    modelServer: {batching: continuous, accelerator: H100, outputTokens: 20..400}
workload: {requests: 300, rate: 60, concurrency: 300, prompt: {characters: 4000}}
`))
	if err != nil {
		t.Fatal(err)
	}
	s.Pools[0].EPP.Config.File, s.Pools[0].EPP.Config.Text = "epp.yaml", fmt.Appendf(nil, `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [%s]
schedulingProfiles: [{name: default, plugins: [%s]}]
dataLayer: {injectDefaults: false, sources: [%s]}
`, plugins, profile, sources)
	events := recorded(t, s)
	if n := outcomes(events)["completed"]; n != 300 {
		t.Fatalf("%d of 300 requests completed", n)
	}
	return events
}

// picks says where each request went, and by which scores.
func picks(events []record.Event) string {
	var b strings.Builder
	for _, e := range events {
		if e.Step == record.EndpointPicked {
			fmt.Fprintln(&b, e.Endpoint, e.Details.Get("scores"))
		}
	}
	return b.String()
}

// How often the picker's configuration has servers scraped decides what the
// picker knows.
func TestScrapeInterval(t *testing.T) {
	t.Parallel()
	of := func(interval string) string {
		return picks(loaded(t, `{type: vllm-metric-scraper, parameters: {interval: `+
			interval+`}}, {type: queue-scorer}, {type: running-requests-size-scorer}`,
			"{pluginRef: running-requests-size-scorer}, {pluginRef: queue-scorer}",
			"{pluginRef: vllm-metric-scraper, extractors: [{pluginRef: vllm-metric-scraper}]}"))
	}
	often, seldom := of("50ms"), of("5s")
	if often == seldom {
		t.Error("scraping every 50 ms and every 5 s lead to the same decisions")
	}
	if again := of("50ms"); again != often {
		t.Error("the same scenario leads to other decisions")
	}
	for _, text := range []string{often, seldom} {
		if strings.Count(text, "\n") != 300 {
			t.Error("not every request was decided")
		}
	}
}

// Whatever a server's metrics say can be scored by: histograms' quantiles, rates,
// and what has labels.
func TestScrapedMetrics(t *testing.T) {
	t.Parallel()
	const core = "{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}"
	for _, spec := range []string{"vllm_request_latency_p99", "vllm_tokens_per_second", "vllm_gpu_utilization",
		"vllm:prompt_tokens_total",
		"vllm:request_success_total{finished_reason=\\\"stop\\\"}", "vllm_gpu_compute_utilization_percent"} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			events := loaded(t, `{type: core-metrics-extractor, parameters: {engineConfigs: [{name: vllm, queuedRequestsSpec: "vllm:num_requests_waiting", runningRequestsSpec: "vllm:num_requests_running",
 kvUsageSpec: "vllm:kv_cache_usage_perc", customMetrics: [{attributeKey: figure, metricSpec: "`+spec+`"}]}]}}, {type: metrics-data-source},
 {type: endpoint-attribute-scorer, parameters: {attributeKey: figure, algorithm: {type: linear_lower_is_better, normalization: {adaptiveRange: {}}}}}`,
				"{pluginRef: endpoint-attribute-scorer}", core)
			scores := map[any]bool{}
			for _, e := range events {
				if e.Step == record.EndpointPicked {
					scores[fmt.Sprint(e.Details.Get("scores"))] = true
				}
			}
			if len(scores) < 10 {
				t.Errorf("only %d different scores: %v", len(scores), scores)
			}
		})
	}
}
