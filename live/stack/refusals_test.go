package stack

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// ended are the details of each request's end, without what is written out in
// wall time alone.
func ended(events []record.Event) map[string]string {
	out := map[string]string{}
	for _, e := range events {
		if e.Step != record.Finished {
			continue
		}
		for _, d := range e.Details {
			if d.Key != "bytes" {
				out[e.Request] += fmt.Sprintf("%s=%v ", d.Key, d.Value)
			}
		}
	}
	return out
}

// oneAtATime is a scenario, but for its workload, whose servers take one request each for so long; the others
// wait in flow control for ttl at the most. More are lines of the pool's and its picker's.
func oneAtATime(prefill, more, ttl string) string {
	return fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    flow: plain
    modelServer: {prefill: %s, interTokenLatency: 2ms, outputTokens: 5}
    epp:
%s      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        featureGates: [flowControl]
        plugins:
        - {type: concurrency-detector, parameters: {maxConcurrency: 1}}
        - {type: queue-scorer}
        schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
        flowControl: {saturationDetector: {pluginRef: concurrency-detector}, defaultRequestTTL: %s}
`, prefill, more, ttl)
}

// Refusals by flow control have the same texts in both times.
func TestRefusalsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	live, played := liveInStep(t, oneAtATime("5s", "", "50ms")+"workload: {requests: 3, rate: 20, concurrency: 3}")
	a, b := ended(live), ended(played)
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("live (-) and virtual (+) differ: %s", d)
	}
	refused := 0
	for _, text := range a {
		if strings.Contains(text, "reason=") {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d requests were refused for a reason, expected those that wait behind the first: %v", refused, a)
	}
}

// Clients that leave while flow control still has their requests are forgotten by the same steps in both times, and the
// next request of the queue is not one of theirs.
func TestLeavingTheQueueLiveAsVirtual(t *testing.T) {
	t.Parallel()
	live, played := liveInStep(t,
		oneAtATime("8s", "", "60s")+
			"workload: {requests: 3, rate: 5, concurrency: 3, leaving: {requests: [2], after: 3s}}")
	a, b := ended(live), ended(played)
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("live (-) and virtual (+) differ: %s", d)
	}
	for _, e := range live {
		if e.Request == "req-1-000002" && e.Hop == record.Server {
			t.Errorf("the request of a client that has left reached a server: %v", e)
		}
	}
	if len(a) != 3 || !strings.Contains(a["req-1-000003"], "outcome=completed") {
		t.Errorf("%v", a)
	}
}

// A server that does not fit into its memory says so by the same words in both
// times.
func TestOutOfMemoryLiveAsVirtual(t *testing.T) {
	t.Parallel()
	parse := func() *scenario.Scenario {
		s, err := scenario.Parse("test.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    flow: plain
    model: llama-70b
    modelServer: {batching: continuous, oom: restart}
    epp: # does not ask servers whether they are ready, and sends requests to one that is not
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins: [{type: metrics-data-source}, {type: core-metrics-extractor}, {type: queue-scorer}]
        schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
        dataLayer: {injectDefaults: false, sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}
workload: {requests: 2}
`))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	live := start(t, parse(), nil).load()
	var played []record.Event
	if err := virtual.Run(parse(), record.Func(func(e record.Event) { played = append(played, e) }), nil); err != nil {
		t.Fatal(err)
	}
	a, b := said(live), said(played)
	for _, lines := range a {
		for i := range lines { // how often it was restarted until now is the clock's affair
			lines[i] = restarts.ReplaceAllString(lines[i], ", 0 restarts)")
		}
	}
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("live (-) and virtual (+) differ: %s", d)
	}
	if all := fmt.Sprint(a); !strings.Contains(all, "status=503") {
		t.Errorf("expected requests that are refused: %s", all)
	}
}

var restarts = regexp.MustCompile(`, \d+ restarts\)`)

// A client's own limits have the same texts in both times.
func TestGivingUpLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for _, load := range []string{"{requests: 2, timeout: 3s}",
		"{requests: 2, leaving: {requests: [1, 2], after: 3s}}"} {
		t.Run(load, func(t *testing.T) {
			t.Parallel()
			live, played := liveAsVirtual(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools: [{name: pool, flow: plain, modelServer: {prefill: 60s, interTokenLatency: 2ms, outputTokens: 5}}]
workload: `+load+"\n")
			if d := cmp.Diff(ended(live), ended(played)); d != "" {
				t.Errorf("live (-) and virtual (+) differ: %s", d)
			}
		})
	}
}

// A renderer counts the same tokens in both times, and is asked by its name.
func TestRendererLiveAsVirtual(t *testing.T) {
	t.Parallel()
	live, played := liveAsVirtual(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: m
    flow: plain
    replicas: 2
    modelServer: {batching: continuous, prefill: 20ms, interTokenLatency: 2ms, outputTokens: 5, numGPUBlocks: 4096, maxModelLen: 16384}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins: [{type: token-producer, parameters: {modelName: m, vllm: {url: "http://model-server:8000"}}}, {type: prefix-cache-scorer}]
        schedulingProfiles: [{name: default, plugins: [{pluginRef: prefix-cache-scorer}]}]
workload: {requests: 3, prompt: {characters: 900}}
`)
	count := func(events []record.Event) map[string][2]int {
		out := map[string][2]int{}
		for _, e := range events {
			switch e.Step {
			case record.CallFailed:
				t.Errorf("%s: %v", e.Request, e.Details)
			case record.EndpointPicked:
				x, ok := e.Details.Get(record.Explanation).(*picker.Explanation)
				if !ok {
					t.Fatal("no explanation")
				}
				out[e.Request] = [2]int{x.Estimated, out[e.Request][1]}
			case record.RequestReceived:
				if n, ok := e.Details.Get("prompt_tokens").(int); ok {
					out[e.Request] = [2]int{out[e.Request][0], n}
				}
			}
		}
		return out
	}
	a, b := count(live), count(played)
	if d := cmp.Diff(a, b); d != "" || a["req-1-000001"][0] != a["req-1-000001"][1] {
		t.Errorf("of tokens at the picker and at the server: live %v, virtual %v", a, b)
	}
}
