package stack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// cacheAware is a pool that is routed by what its servers announce.
const cacheAware = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: default
    model: llama-3.1-8b
    replicas: 4
    modelServer:
      batching: continuous
      prefill: 5ms
      interTokenLatency: 1ms
      outputTokens: 20
      numGPUBlocks: 300
      kvEvents: {format: %s, interval: 1ms}
    kvManager: %v
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
        - {type: token-producer, parameters: {modelName: llama-3.1-8b, vllm: {url: "http://model-server:8000"}}}
        - {type: endpoint-notification-source}
        - {type: precise-prefix-cache-producer, parameters: {indexerConfig: {kvBlockIndexConfig: {enableMetrics: true}}}}
        - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
        - {type: queue-scorer}
        dataLayer: {sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]}
        schedulingProfiles:
        - name: default
          plugins:
          - {pluginRef: prefix-cache-scorer, weight: 2}
          - {pluginRef: queue-scorer, weight: 1}
workload:
  requests: 60
  concurrency: 4
  maxTokens: 20
  prompt:
    characters: 64
    shared: {groups: 6, characters: 1200}
`

func cacheScenario(t *testing.T, format string, manager bool) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("kv.yaml", []byte(fmt.Sprintf(cacheAware, format, manager)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A whole run in each format: every request ends, the indexes are the union of
// what the engines hold, evictions and all, and prompts find their blocks.
func TestIndexIsTheUnionAfterARun(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"msgpack", "msgpack-map", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := start(t, cacheScenario(t, format, true), nil)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := r.Load(ctx); err != nil {
				t.Fatal(err)
			}
			checks := r.Stack.CheckKV(ctx)
			if len(checks) != 2 {
				t.Fatalf("%d indexes were checked, expected the picker's and the manager's", len(checks))
			}
			for _, c := range checks {
				if c.Blocks == 0 || c.Missing+c.Extra > 0 || c.Events == 0 || c.Max <= 0 || c.Excuse != "" {
					t.Errorf("%+v", c)
				}
			}
			// 60 prompts of 6 beginnings: most find theirs.
			if found, finished := r.found(); finished != 60 || found < 40 {
				t.Errorf("%d requests finished, %d found blocks", finished, found)
			}
			page := get(t, "http://"+r.Picker.Server().MetricsAddr()+"/metrics")
			for _, want := range []string{"llm_d_router_epp_kv_cache_index_lookup_hits_total",
				"kvcache_index_admissions_total", "llm_d_router_epp_kv_cache_events_active_subscribers 4"} {
				if !strings.Contains(page, want) {
					t.Errorf("there is no %s in the metrics", want)
				}
			}
			r.idle()
		})
	}
}

// found is how many requests found blocks, and how many finished.
func (r *rig) found() (found, finished int) {
	for _, e := range r.rec.all() {
		if e.Step == record.Finished && e.Hop == record.Client {
			finished++
		}
		if n, _ := e.Details.Get("cached_tokens").(int); n > 0 {
			found++
		}
	}
	return found, finished
}

func get(t *testing.T, url string) string {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// The KV-Cache Manager answers the picker's question by its name, and the
// index that the picker asks is right.
func TestManagerIsAskedByItsName(t *testing.T) {
	t.Parallel()
	s := cacheScenario(t, "json", true)
	s.Pools[0].EPP.Config.Text = []byte(`
plugins:
- {type: kv-cache-manager-scorer, parameters: {endpoint: "http://kv-cache-manager:8080", timeout: 5s, cache_threshold: 0}}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: kv-cache-manager-scorer, weight: 1}]}
`)
	r := start(t, s, nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Load(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Stack.CheckKV(ctx) {
		if c.Index != "kv-cache-manager" || c.Missing+c.Extra > 0 {
			t.Errorf("%+v", c)
		}
	}
	if found, finished := r.found(); finished != 60 || found < 40 {
		t.Errorf("%d requests finished, %d found blocks", finished, found)
	}
	if page := get(t, "http://"+r.kv.manager.HTTPAddress()+"/metrics"); !strings.Contains(page, "kv_cache_manager_") {
		t.Errorf("the manager's metrics: %s", page)
	}
	r.idle()
}

// The same prompt twice under one id has the same answer, too: its blocks are
// filled a second time and the copies go. What is left is still in every index.
func TestIndexKeepsABlockWhoseCopyGoes(t *testing.T) {
	t.Parallel()
	s := cacheScenario(t, "json", true)
	s.Workload.Requests = 1
	r := start(t, s, nil)
	// The events of the last prompt arrive after all earlier ones: an index that has them has all.
	for _, prompt := range []string{"hello world ", "hello world ", "something else "} {
		body := `{"model":"llama-3.1-8b","max_tokens":20,"messages":[{"role":"user","content":"` +
			strings.Repeat(prompt, 30) + `"}]}`
		if a := r.postTo("http://"+r.Endpoints[0], "/v1/chat/completions", body, "x-request-id",
			"again"); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	r.idle() // a server frees an answer's blocks once it has sent the answer
	r.kv.list[0].Publisher.Flush()
	var checks []report.IndexSummary
	defer func() {
		if t.Failed() {
			t.Logf("the indexes are %+v", checks)
		}
	}()
	r.until("every index has what the server holds", func() bool {
		checks = r.checkKV()
		return !slices.ContainsFunc(checks, func(c report.IndexSummary) bool {
			return c.Blocks == 0 || c.Missing+c.Extra > 0
		})
	})
}
