package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
)

// Document 002's walk under load says the same in both times: what no route matches has
// no step but the client's, and what one does takes the rewritten path to a pod.
func TestManifestsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/default/my-llm/v1/chat/completions": "completed",
		"/other/v1/chat/completions": "refused"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			manifests, err := filepath.Abs("../../examples/manifests/document-002")
			if err != nil {
				t.Fatal(err)
			}
			live, _ := liveAsVirtual(t,
				"apiVersion: windtunnel/v1alpha1\nkind: Scenario\nname: m\nmanifests: "+manifests+
					"\nworkload: {requests: 4, path: "+path+", outputTokens: 3}\n")
			ended := 0
			for _, e := range live {
				if e.Hop == record.Client && e.Step == record.Finished && e.Details.Get("outcome") == want {
					ended++
				}
				if e.Step == record.RequestReceived && e.Hop == record.EPP &&
					!strings.HasPrefix(e.Details.Get("path").(string), "/default/my-llm/") {
					t.Errorf("the picker saw %v", e.Details)
				}
			}
			if ended != 4 {
				t.Errorf("%d of 4 requests ended as %s", ended, want)
			}
		})
	}
}

// Servers that join behind manifests get requests, as soon as the picker chooses them; in both
// times.
func TestManifestServersJoinLiveAsVirtual(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(path, []byte(policed), 0o600); err != nil {
		t.Fatal(err)
	}
	live, played := bothTimes(t,
		"apiVersion: windtunnel/v1alpha1\nkind: Scenario\nmanifests: "+path+
			"\npools: [{name: one, replicas: 1, lifecycle: {startup: 200ms}, modelServer: {prefill: 20ms, "+
			"outputTokens: 4}, incidents: [{at: 100ms, what: add-server}]}]\nworkload: {requests: 80, rate: 20, "+
			"arrivals: constant}\n", nil)
	for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
		picked, servers := map[string]string{}, map[string]int{}
		for _, e := range events {
			switch {
			case e.Step == record.EndpointPicked:
				picked[e.Request] = e.Endpoint
			case e.Hop == record.Server && e.Step == record.RequestReceived:
				servers[e.Endpoint]++
				if e.Endpoint != picked[e.Request] {
					t.Errorf("%s: %s went to %s and not to %s", when, e.Request, e.Endpoint, picked[e.Request])
				}
			}
		}
		if len(servers) != 2 || outcomes(events) != "map[completed:80]" {
			t.Errorf("%s: %v, %s", when, servers, outcomes(events))
		}
	}
}

// Several pools behind one Gateway, by the model that bodies name: each request comes to its
// pool, by the same steps in both times.
func TestSeveralPoolsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	manifests, err := filepath.Abs("../../examples/manifests/several-models")
	if err != nil {
		t.Fatal(err)
	}
	live, played := liveAsVirtual(t, "apiVersion: windtunnel/v1alpha1\nkind: Scenario\nmanifests: "+manifests+`
workload:
  requests: 12
  path: /v1/chat/completions
  host: llm.example.com
  outputTokens: 3
  classes: [{name: chat, share: 50%}, {name: code, share: 50%, model: Qwen/Qwen2.5-7B-Instruct}]
`)
	pools := func(events []record.Event) map[string]string {
		out := map[string]string{}
		for _, e := range events {
			if e.Step == record.EndpointPicked {
				// qwen and qwen-next share a model by weight
				out[e.Request], _, _ = strings.Cut(fmt.Sprint(e.Details.Get("name")), "-")
			}
		}
		return out
	}
	a, b, each := pools(live), pools(played), map[string]bool{}
	for id, pool := range a {
		if each[pool] = true; pool != b[id] {
			t.Errorf("%s: live to %s, virtual to %s", id, pool, b[id])
		}
	}
	if len(each) != 2 || outcomes(live) != "map[completed:12]" {
		t.Errorf("pools %v, %s", each, outcomes(live))
	}
}

// How caches travel document 003's connector.config says, in both times: half the bytes with
// compression, at the rate of TCP without RDMA, asked for at the port that it says.
func TestConnectorConfigLiveAsVirtual(t *testing.T) {
	t.Parallel()
	const pool = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec: {gatewayClassName: c, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec: {parentRefs: [{name: g}], rules: [{backendRefs: [{group: serving.kserve.io, kind: InferencePool, name: p}]}]}
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: p}
spec:
  modelName: m
  selector: {matchLabels: {model: m}}
  disaggregation: {enabled: true, decodeSelector: {matchLabels: {app: m-decode}}, prefillSelector: {matchLabels: {app: m-prefill}}, connector: {type: nixlv2, config: {%s}}}
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferenceModel
metadata: {name: m}
spec: {modelSource: {huggingFace: {modelId: m}}, deployment: {type: Disaggregated, prefillWorkers: {replicas: 1, labels: {llm-d.ai/role: prefill}}, decodeWorkers: {replicas: 1, labels: {llm-d.ai/role: decode}}}}
`
	play := func(config string) (bytes, micros, liveMicros int) {
		path := filepath.Join(t.TempDir(), "m.yaml")
		if err := os.WriteFile(path, fmt.Appendf(nil, pool, config), 0o600); err != nil {
			t.Fatal(err)
		}
		live, played := liveAsVirtual(t,
			"apiVersion: windtunnel/v1alpha1\nkind: Scenario\nmanifests: "+path+
				"\npools: [{name: p, modelServer: {prefill: 20ms, interTokenLatency: 2ms, outputTokens: 4, "+
				"numGPUBlocks: 4096, maxModelLen: 16384}}]\nworkload: {requests: 1, prompt: {characters: 40000}}\n")
		if a, b := fetched(live), fetched(played); a != b || !strings.HasPrefix(a, "1 caches") {
			t.Errorf("%s: live %s were fetched, virtually %s", config, a, b)
		}
		at := func(events []record.Event) (bytes, micros int) {
			for _, e := range events {
				if b, ok := e.Details.Get("fetched_bytes").(int); ok {
					bytes, micros = b, e.Details.Get("fetched_us").(int)
				}
			}
			return bytes, micros
		}
		_, liveMicros = at(live)
		bytes, micros = at(played)
		return bytes, micros, liveMicros
	}
	whole, fast, _ := play("")
	half, _, _ := play("compressionEnabled: true")
	_, slow, live := play("rdmaEnabled: false, sideChannelPortRange: 5555-5556")
	if half*2 != whole {
		t.Errorf("%d bytes, with compression %d", whole, half)
	}
	if slow*10 < fast*12 || live < slow {
		t.Errorf("it takes %d µs, without RDMA %d, in wall time %d", fast, slow, live)
	}
}

// inferenceParams.max_tokens of document 003's InferenceModel ends longer answers, in both times.
func TestInferenceParamsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(path, []byte(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec: {gatewayClassName: c, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec: {parentRefs: [{name: g}], rules: [{backendRefs: [{group: serving.kserve.io, kind: InferencePool, name: p}]}]}
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: p}
spec: {modelName: m, selector: {matchLabels: {model: m}}}
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferenceModel
metadata: {name: m}
spec: {modelSource: {huggingFace: {modelId: m}}, inferenceParams: {max_tokens: 3}, deployment: {replicas: 1}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	live, played := liveAsVirtual(t,
		"apiVersion: windtunnel/v1alpha1\nkind: Scenario\nmanifests: "+path+
			"\npools: [{name: p, modelServer: {prefill: 20ms, interTokenLatency: 2ms, outputTokens: 9, numGPUBlocks: "+
			"4096, maxModelLen: 16384}}]\nworkload: {requests: 4, maxTokens: 7}\n")
	for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
		n := 0
		for _, e := range events {
			if e.Step == record.Finished && e.Hop == record.Client {
				if n++; e.Details.Get("tokens") != 3 {
					t.Errorf("%s: %s has %v tokens; expected 3", when, e.Request, e.Details.Get("tokens"))
				}
			}
		}
		if n != 4 {
			t.Errorf("%s: %d requests", when, n)
		}
	}
}

// Headers that a workload's classes send lead where a route's matches say, in both times.
func TestClassHeadersRouteLiveAsVirtual(t *testing.T) {
	t.Parallel()
	routes := strings.Replace(policed,
		`  rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: one}]}]`, `  rules:
  - matches: [{headers: [{name: x-team, value: code}]}]
    backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: one}]
  - matches: [{headers: [{name: x-team, type: RegularExpression, value: "te.*"}], method: POST}]
    backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: two}]`, 1)
	i, j := strings.Index(routes, "apiVersion: inference.networking"),
		strings.Index(routes, "apiVersion: v1\nkind: ConfigMap")
	second := strings.NewReplacer("one", "two").Replace(routes[i:j])
	path := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(path, []byte(routes+second), 0o600); err != nil {
		t.Fatal(err)
	}
	live, played := liveAsVirtual(t, "apiVersion: windtunnel/v1alpha1\nkind: Scenario\nmanifests: "+path+`
pools: [{name: one, modelServer: {prefill: 20ms}}, {name: two, modelServer: {prefill: 20ms}}]
workload:
  requests: 18
  outputTokens: 2
  classes:
  - {name: code, share: 40%, headers: [{name: x-team, value: code}]}
  - {name: tests, share: 30%, headers: [{name: x-team, value: tests}]}
  - {name: others, share: 30%, headers: [{name: x-team, value: sales}]}
`)
	for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
		class, pool, seen := map[string]string{}, map[string]string{}, map[string]bool{}
		for _, e := range events {
			switch {
			case e.Hop == record.Client && e.Step == record.RequestSent:
				class[e.Request] = fmt.Sprint(e.Details.Get("class"))
			case e.Step == record.EndpointPicked:
				pool[e.Request], _, _ = strings.Cut(fmt.Sprint(e.Details.Get("name")), "-")
			}
		}
		for id, c := range class {
			want := map[string]string{"code": "one", "tests": "two", "others": ""}[c]
			if seen[c] = true; pool[id] != want {
				t.Errorf("%s: %s of class %s came to pool %q, expected %q", when, id, c, pool[id], want)
			}
		}
		if len(seen) != 3 {
			t.Errorf("%s: classes %v", when, seen)
		}
	}
}

// A KV-Cache Manager's Deployment works in both times: conversations continue at the server that caches their
// beginnings, because the picker asks the manager.
func TestManagerManifestsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	manifests, err := filepath.Abs("../../examples/manifests/kv-cache-manager")
	if err != nil {
		t.Fatal(err)
	}
	live, played := liveAsVirtual(t, "apiVersion: windtunnel/v1alpha1\nkind: Scenario\nmanifests: "+manifests+`
workload: {requests: 9, path: /v1/chat/completions, outputTokens: 3, prompt: {characters: 2000}, conversations: {turns: 3, thinkTime: 300ms}}
`)
	for when, events := range map[string][]record.Event{"live": live, "virtual": played} {
		cached := 0
		for _, e := range events {
			if e.Step == record.PrefillStarted {
				if n, ok := e.Details.Get("cached_tokens").(int); ok && n > 0 {
					cached++
				}
			}
		}
		if cached != 6 || outcomes(events) != "map[completed:9]" {
			t.Errorf("%s: %d of 6 requests that go on found their beginning cached; %s", when, cached, outcomes(events))
		}
	}
}
