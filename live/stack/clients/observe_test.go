package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/live/monitoring"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/report/observe"
	"github.com/windtunnel/windtunnel/scenario"
)

// watched is a scenario in which every part plays that dashboards have panels for: sidecars,
// flow control, an approximate prefix index and filters; KV events that a picker follows; a
// KV-Cache Manager; and requests that fail.
const watched = `apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pd
    model: llama-3.1-8b
    replicas: 1
    sidecar: routing
    disaggregation: {prefillReplicas: 1}
    modelServer: {batching: continuous, accelerator: H100, outputTokens: 4..8, faults: [{fault: status=500, rate: 20%}]}
    epp:
      config:
        featureGates: [flowControl]
        plugins:
          - {type: approx-prefix-cache-producer, parameters: {autoTune: false, blockSizeTokens: 16}}
          - {type: prefix-cache-scorer}
          - {type: queue-scorer}
          - {type: max-score-picker}
          - {type: decode-filter}
          - {type: prefill-filter}
          - {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 10}}
          - {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
        schedulingProfiles:
          - {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}, {pluginRef: max-score-picker}]}
          - {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: prefix-cache-scorer, weight: 2}, {pluginRef: queue-scorer}, {pluginRef: max-score-picker}]}
  - name: events
    model: Qwen/Qwen2.5-0.5B
    replicas: 1
    modelServer: {batching: continuous, accelerator: H100, outputTokens: 4..8, kvEvents: {format: msgpack, interval: 10ms}}
    epp:
      config:
        plugins:
          - {type: token-producer, parameters: {modelName: Qwen/Qwen2.5-0.5B, vllm: {url: "http://model-server:8000"}}}
          - {type: endpoint-notification-source}
          - {type: precise-prefix-cache-producer, parameters: {tokenProcessorConfig: {blockSizeTokens: 16}, indexerConfig: {kvBlockIndexConfig: {inMemoryConfig: {size: 10000}, enableMetrics: true}}}}
          - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
        dataLayer: {sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]}
        schedulingProfiles: [{name: default, plugins: [{pluginRef: prefix-cache-scorer}]}]
  - name: manager
    model: Qwen/Qwen2.5-1.5B
    replicas: 1
    kvManager: true
    modelServer: {batching: continuous, accelerator: H100, outputTokens: 4..8, kvEvents: {format: json, interval: 10ms}}
    epp:
      config:
        plugins: [{type: kv-cache-manager-scorer, parameters: {endpoint: "http://kv-cache-manager:8080"}}]
        schedulingProfiles: [{name: default, plugins: [{pluginRef: kv-cache-manager-scorer}]}]
workload:
  requests: REQUESTS
  rate: 30
  includeUsage: true
  prompt: {characters: 400, shared: {groups: 3, characters: 1600}}
  classes: [{name: pd, share: 60%, model: llama-3.1-8b}, {name: events, share: 20%, model: Qwen/Qwen2.5-0.5B}, {name: manager, share: 20%, model: Qwen/Qwen2.5-1.5B}]
`

// observed is a stack that plays so many requests of watched, and its targets by job.
func observed(t *testing.T, requests int) (*stack.Stack, map[string][]observe.Target) {
	t.Helper()
	s, err := scenario.Parse("watched.yaml", []byte(strings.Replace(watched, "REQUESTS", strconv.Itoa(requests), 1)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := stack.Start(ctx,
		stack.Options{Scenario: s, Recorder: record.Func(func(record.Event) {}), Dir: t.TempDir()})
	if err != nil {
		missing(t, "the stack does not start: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := st.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	addresses, err := json.Marshal(st.Addresses())
	if err != nil {
		t.Fatal(err)
	}
	targets, err := observe.ReadTargets(addresses)
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range observe.Jobs() {
		if len(targets[job]) == 0 {
			t.Fatalf("no target of job %s", job)
		}
	}
	return st, targets
}

// Every metric that a panel or a rule queries is one that Windtunnel's parts have; and none is among those that, by
// docs/observe.md, can never match.
func TestQueriesAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	st, targets := observed(t, 90)
	if err := st.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"up": true}
	for job, list := range targets {
		for _, x := range list {
			path := "/metrics"
			if job == observe.Envoys {
				path = "/stats/prometheus"
			}
			resp, err := http.Get("http://" + x.Targets[0] + path)
			if err != nil {
				t.Fatal(err)
			}
			p := expfmt.NewTextParser(model.UTF8Validation)
			families, err := p.TextToMetricFamilies(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(job, err)
			}
			for name, f := range families {
				names[name] = true
				for _, more := range map[string][]string{"HISTOGRAM": {"_bucket", "_sum", "_count"},
					"SUMMARY": {"_sum", "_count"}}[f.GetType().String()] {
					names[name+more] = true
				}
			}
		}
	}
	for name, expr := range observe.Queries() {
		for _, asked := range metricsOf(t, expr) {
			if !names[asked] {
				t.Errorf("%s: no part tells of %s", name, asked)
			}
		}
	}
	for _, n := range unmatchedMetrics {
		if names[n.metric] {
			t.Errorf("%s is there, and docs/observe.md says that it can never match", n.metric)
		}
	}
}

// metricsOf are the names of metrics in a query.
func metricsOf(t *testing.T, expr string) (out []string) {
	t.Helper()
	x, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%v\n%s", err, expr)
	}
	parser.Inspect(x, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			out = append(out, v.Name)
		}
		return nil
	})
	return out
}

// A real Prometheus reads the folder that windtunnel observe writes, and every panel's and
// every rule's query returns data over a run.
func TestQueriesReturnData(t *testing.T) {
	if os.Getenv("WINDTUNNEL_OBSERVE") == "" && !everything {
		t.Skip("make test-observe runs it: it fetches a Prometheus")
	}
	binary := prometheus(t)
	st, targets := observed(t, 30*180) // three minutes of requests; the test needs a part of them
	dir := t.TempDir()
	made, err := observe.Files(
		observe.Options{Interval: time.Second, Prometheus: "http://127.0.0.1:9091", Dir: dir, Targets: targets})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range made {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Debian builds its Prometheus without Kubernetes: a file stands for it.
	cluster := regexp.MustCompile(
		`kubernetes_sd_configs:\n      - role: pod\n(        namespaces:\n          names: .*\n)?`).ReplaceAll(
		made["kubernetes.yml"], []byte("file_sd_configs: [{files: [pods.json]}]\n"))
	if err := os.WriteFile(filepath.Join(dir, "kubernetes.yml"), cluster, 0o600); err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(filepath.Dir(binary), "promtool")
	for _, args := range [][]string{{"check", "config", filepath.Join(dir, "prometheus.yml")},
		{"check", "config", filepath.Join(dir, "kubernetes.yml")},
		{"check", "rules", filepath.Join(dir, "rules", "alerts.yml"),
			filepath.Join(dir, "rules", "recordings.yml")}} {
		if out, errs, err := run(t, dir, nil, tool, args...); err != nil {
			t.Errorf("promtool %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
		}
	}
	p, err := monitoring.Prometheus(t.Context(), binary, dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	// Series that begin with a first event have a rate from their second scrape on, so the
	// load continues until there is data of all.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := make(chan error, 1)
	go func() { loaded <- st.Load(ctx) }()
	open := map[string]string{}
	for name, expr := range observe.Queries() {
		open[name] = expr
	}
	queries := len(open)
	for over := false; len(open) > 0 && !over; {
		select {
		case err := <-loaded:
			if over = true; err != nil {
				t.Fatal(err)
			}
			loaded <- nil
		case <-time.After(100 * time.Millisecond):
		}
		for name, expr := range open {
			if results(t, p.URL, expr) > 0 {
				delete(open, name)
			}
		}
	}
	cancel()
	<-loaded
	for name, expr := range open {
		t.Errorf("%s returns no data\n%s", name, expr)
	}
	t.Logf("%d of %d queries returned data", queries-len(open), queries)
	for _, r := range observe.Recordings() {
		eventually.Is(t, "the recording "+r.Record, func() bool { return results(t, p.URL, r.Record) > 0 })
	}
	// The labels that dashboards go by are there as they are written.
	for _, expr := range []string{
		`vllm:num_requests_running{namespace="default",pod="pd-prefill-0",job="vllm-workers",instance="pd-prefill-0"}`,
		`vllm:num_requests_running{pod=~".*decode.*"}`,
		`llmd_sidecar_allowlist_size{pod="pd-decode-0",namespace="default"}`,
		`up{job="llm-d-epp",instance="pd-epp-0",namespace="default"}`, `llmd_epp_cache_hit_rate{pod="pd-decode-0"}`,
		`envoy_cluster_upstream_rq_retry{job="envoy"}`} {
		if results(t, p.URL, expr) == 0 {
			t.Errorf("%s returns no data", expr)
		}
	}
	if n := results(t, p.URL, `vllm:num_requests_running{job="llm-d-sidecar"}`); n != 0 {
		t.Errorf("the decode server's figures are there %d times more, from the sidecar's page", n)
	}
}

// results is how many series a Prometheus has of a query, those that are no number left out.
func results(t *testing.T, base, expr string) (n int) {
	t.Helper()
	resp, err := http.Get(base + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	if a.Status != "success" {
		t.Fatalf("%s\n%s", a.Error, expr)
	}
	for _, r := range a.Data.Result {
		if r.Value[1] != "NaN" {
			n++
		}
	}
	return n
}

// docs/observe.md has every panel's file, and every upstream query that can never match.
func TestObserveDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "observe.md"))
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for _, d := range observe.Dashboards {
		missing = append(missing, d.File+".json")
	}
	for _, n := range unmatchedMetrics {
		missing = append(missing, fmt.Sprintf("| `%s` | %s |", n.metric, n.why))
	}
	missing = slices.DeleteFunc(missing, func(s string) bool { return bytes.Contains(text, []byte(s)) })
	if len(missing) > 0 {
		t.Errorf("docs/observe.md lacks\n%s", strings.Join(missing, "\n"))
	}
}
