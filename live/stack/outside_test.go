package stack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// failures are the calls and scrapes of the picker that failed.
func failures(events []record.Event) []string {
	found := map[string]bool{}
	for _, e := range events {
		switch e.Step {
		case record.CallFailed:
			found[fmt.Sprint(e.Request, " ", e.Details.Get("plugin"), " ", e.Details.Get("url"))] = true
		case record.ScrapeFailed:
			found[fmt.Sprint(e.Details.Get("plugin"), " ", e.Details.Get("name"))] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// The addresses are the same in both times: a model server behind a sidecar has a port of its own, at which one that
// prefills answers, too, as document 003's scrapers ask every worker there. Scraping another port fails.
func TestScrapedPortsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for port, silent := range map[int][]string{8000: nil, 8001: nil,
		8002: {"vllm-metric-scraper pool-decode-0", "vllm-metric-scraper pool-prefill-0"}} {
		t.Run(fmt.Sprint(port), func(t *testing.T) {
			t.Parallel()
			live, played := liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: m
    replicas: 1
    sidecar: routing
    disaggregation: {prefillReplicas: 1}
    modelServer: {batching: continuous, prefill: 20ms, interTokenLatency: 2ms, outputTokens: 8, numGPUBlocks: 4096, maxModelLen: 16384}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
        - {type: disagg-headers-handler}
        - {type: decode-filter}
        - {type: prefill-filter}
        - {type: always-disagg-pd-decider}
        - {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
        - {type: vllm-metric-scraper, parameters: {port: %d, interval: 100ms, timeout: 10s}}
        schedulingProfiles:
        - {name: decode, plugins: [{pluginRef: decode-filter}]}
        - {name: prefill, plugins: [{pluginRef: prefill-filter}]}
        dataLayer: {injectDefaults: false, sources: [{pluginRef: vllm-metric-scraper, extractors: [{pluginRef: vllm-metric-scraper}]}]}
workload: {requests: 2, prompt: {characters: 800}}
`, port))
			for time, events := range map[string][]record.Event{"live": live, "virtual": played} {
				if d := cmp.Diff(silent, failures(events)); d != "" {
					t.Errorf("%s: expected (-) and found (+) without an answer: %s", time, d)
				}
			}
		})
	}
}

// A port that a configuration names is the pods' own without sidecars too.
func TestPlainPortLiveAsVirtual(t *testing.T) {
	t.Parallel()
	const text = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    flow: plain
    replicas: 2
    modelServer: {prefill: 20ms, interTokenLatency: 2ms, outputTokens: 5}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins: [{type: metrics-data-source, parameters: {port: 8000}}, {type: core-metrics-extractor}, {type: queue-scorer}]
        schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
        dataLayer: {injectDefaults: false, sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}
workload: {requests: 2}
`
	s, err := scenario.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	r.until("both servers' metrics are read", func() (read bool) { // the first pages may be late on a busy machine
		r.Picker.now().With(func(m *core.Machine, _ machine.Time) {
			read = !slices.ContainsFunc(m.Picker().Pool().View().States,
				func(x picker.State) bool { return !x.Scraped })
		})
		return read
	})
	played := playVirtually(t, text)
	sameRecord(t, r.load(), played)
	if found := failures(played); len(found) > 0 {
		t.Errorf("virtual %v", found)
	}
}

// A name in a configuration exists in both times or in neither, and then each request reports it.
func TestNamesLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, manager, url string
		want               []string
	}{
		{"the manager's name", "kvManager: true", "http://kv-cache-manager:8080", nil},
		{"the document's name", "kvManager: true", "http://kv-cache-manager.llm-d-system.svc.cluster.local:8080", nil},
		{"no manager", "kvManager: false", "http://kv-cache-manager:8080",
			[]string{"req-1-000001 kv-cache-manager-scorer http://kv-cache-manager:8080/api/v1/score"}},
		{"another name", "kvManager: true", "http://manager.invalid:8080",
			[]string{"req-1-000001 kv-cache-manager-scorer http://manager.invalid:8080/api/v1/score"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			live, played := liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: m
    replicas: 2
    %s
    modelServer: {batching: continuous, prefill: 20ms, interTokenLatency: 2ms, outputTokens: 5, numGPUBlocks: 4096, maxModelLen: 16384, kvEvents: {format: json, interval: 10ms}}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins: [{type: kv-cache-manager-scorer, parameters: {endpoint: "%s", timeout: 5s}}]
        schedulingProfiles: [{name: default, plugins: [{pluginRef: kv-cache-manager-scorer}]}]
workload: {requests: 1}
`, c.manager, c.url))
			for time, events := range map[string][]record.Event{"live": live, "virtual": played} {
				// A busy machine keeps pages of metrics waiting.
				found := slices.DeleteFunc(failures(events),
					func(s string) bool { return strings.HasPrefix(s, "metrics-data-source ") })
				if d := cmp.Diff(c.want, found, cmpopts.EquateEmpty()); d != "" {
					t.Errorf("%s: expected (-) and found (+) without an answer: %s", time, d)
				}
			}
		})
	}
}
