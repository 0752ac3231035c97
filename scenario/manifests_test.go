package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const manifestHead = "apiVersion: windtunnel/v1alpha1\nkind: Scenario\nname: m\nmanifests: all.yaml\n"

// served are a Gateway and a route to a pool with three servers.
const served = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec: {gatewayClassName: c, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: g}]
  rules:
  - backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: one}]
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: one}
spec: {selector: {matchLabels: {app: one}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: epp, port: {number: 9002}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: one}
spec:
  replicas: 3
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one, tier: fast}}
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai
        args: [--model=meta-llama/Llama-3.1-8B-Instruct, --served-model-name, llama, --max-num-seqs=17, --no-enable-prefix-caching, --lora-modules, sql=/sql]
`

// withManifests parses a scenario beside manifests.
func withManifests(t *testing.T, manifests, rest string) (*Scenario, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	return Parse(filepath.Join(dir, "s.yaml"), []byte(manifestHead+rest))
}

// A container with several data-parallel ranks is as many servers, and its image says whose defaults apply.
func TestDataParallelManifests(t *testing.T) {
	t.Parallel()
	all := strings.ReplaceAll(strings.ReplaceAll(served, "--max-num-seqs=17", "--data-parallel-size=8, "+
		"--data-parallel-size-local=4, --tensor-parallel-size=2, --enable-expert-parallel"),
		"meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B")
	all = strings.ReplaceAll(all, "vllm/vllm-openai", "docker.io/vllm/vllm-openai:v0.28.1@sha256:0")
	s, err := withManifests(t, all,
		"pools: [{name: one, modelServer: {accelerator: B200}}]\n")
	if err != nil {
		t.Fatal(err)
	}
	p := &s.Pools[0]
	_, gpus, _ := p.Cost(&p.Deployments()[0])
	if p.Servers() != 12 || gpus != 2 || labels(p, 11)["tier"] != "fast" || labels(p, 12)["tier"] != "" {
		t.Errorf("%d servers with %d GPUs each, the last with labels %v", p.Servers(), gpus, labels(p, 11))
	}
	h := p.ModelServer.hardware.model
	if h.Group.Ranks() != 16 || !h.Group.EP || h.VLLM.Version != "0.28.1" {
		t.Errorf("%+v, vLLM %s", h.Group, h.VLLM.Version)
	}
	c, err := s.engine(p, p.DeploymentOf(11), 11)
	if err != nil || c.MaxNumBatchedTokens != 16384 {
		t.Errorf("%d tokens in a step, %v", c.MaxNumBatchedTokens, err)
	}
}

// Manifests say the pools, and what the scenario says of one counts before them.
func TestManifests(t *testing.T) {
	t.Parallel()
	s, err := withManifests(t, served, "pools: [{name: one, modelServer: {blockSize: 32}}]\nworkload: {model: sql}\n")
	if err != nil {
		t.Fatal(err)
	}
	p := &s.Pools[0]
	m := &p.ModelServer
	if len(s.Pools) != 1 || p.Replicas != 3 || p.Model != "llama" || m.MaxNumSeqs != 17 || m.PrefixCaching ||
		m.BlockSize != 32 || m.Batching != Continuous || len(m.LoRAAdapters) != 1 || labels(p, 2)["tier"] != "fast" {
		t.Errorf("%d pools, %d servers of %q: %+v, labels %v", len(s.Pools), p.Replicas, p.Model, m, labels(p, 2))
	}
	if s, err = withManifests(t, served,
		"pools: [{name: one, replicas: 5, modelServer: {maxNumSeqs: 9}}]\n"); err != nil || s.Pools[0].Replicas != 5 ||
		s.Pools[0].ModelServer.MaxNumSeqs != 9 {
		t.Errorf("the scenario's own: %v %+v", err, s)
	}
	if files := s.Files(); len(files) != 1 || filepath.Base(files[0]) != "all.yaml" {
		t.Errorf("read %v", files)
	}
}

// Contradictions are errors with a place, in the scenario or in the manifests.
func TestManifestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, manifests, rest, want string }{
		{"a pool of its own", served, "pools:\n- name: two\n",
			"s.yaml:6:9: pools[0].name: found \"two\"; expected the name of an InferencePool of the manifests that a " +
				"route leads to, one"},
		{"a Service", strings.Replace(served, "{group: inference.networking.k8s.io, kind: InferencePool, name: one}",
			"{name: one, port: 80}", 1) +
			"---\napiVersion: v1\nkind: Service\nmetadata: {name: one}\nspec: {selector: {app: one}, ports: " +
			"[{port: 80}]}\n", "", "all.yaml:13:18: HTTPRoute default/r: spec.rules[0].backendRefs: it leads " +
			"to Service default/one"},
		{"a path without a slash", served, "workload: {path: v1}\n",
			"s.yaml:5:18: workload.path: found \"v1\"; expected a path"},
		{"a pool without pods", strings.Replace(served, "selector: {matchLabels: {app: one}}, targetPorts",
			"selector: {matchLabels: {app: none}}, targetPorts", 1), "",
			"all.yaml:15:1: InferencePool default/one selects the pods of no Deployment"},
		{"no HTTP", strings.Replace(served, "port: 80, protocol: HTTP",
			"port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}", 1), "",
			"s.yaml:4:12: manifests: none of 1 Gateways has a listener with protocol HTTP"},
		{"a flag's value", strings.Replace(served, "--max-num-seqs=17", "--max-num-seqs=0", 1), "",
			"all.yaml:30:9: container vllm: maxNumSeqs: found the number 0; expected"},
		{"what an engine refuses", strings.Replace(served, "--max-num-seqs=17", "--quantization=none-such", 1), "",
			"all.yaml:30:9: pools[0].modelServer"},
		{"a broken manifest", strings.Replace(served, "port: 80,", "port: 0,", 1), "", "all.yaml:5:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := withManifests(t, c.manifests, c.rest)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nis not about %s", err, c.want)
			}
		})
	}
	if _, err := Parse("s.yaml",
		[]byte("apiVersion: windtunnel/v1alpha1\nkind: Scenario\nname: m\npools: [{name: a}]\nworkload: {path: /x}\n")); err == nil || !strings.Contains(err.Error(), "s.yaml:5:18: workload.path: there are no manifests") {
		t.Errorf("a path without manifests: %v", err)
	}
}

// A note warns of a limit of one attempt that a prefill may exceed.
func TestTriesBelowPrefill(t *testing.T) {
	t.Parallel()
	policy := "---\napiVersion: gateway.envoyproxy.io/v1alpha1\nkind: BackendTrafficPolicy\nmetadata: {name: " +
		"p}\nspec: {targetRefs: [{group: g, kind: HTTPRoute, name: r}], retry: {numRetries: 3, perTryTimeout: 20s, " +
		"retryOn: ['5xx']}}\n"
	simulated := served[:strings.Index(served, "        image:")] +
		"        image: llm-d-inference-sim\n        args: [--model=m]\n"
	for prefill, want := range map[string]bool{"1s..30s": true, "1s..20s": false} {
		s, err := withManifests(t, simulated+policy, "pools: [{name: one, modelServer: {prefill: "+prefill+"}}]\n")
		if err != nil {
			t.Fatal(err)
		}
		const text = "each attempt may take 20s, and prefill in pool one takes up to 30s"
		if got := strings.Contains(strings.Join(s.Assumed(), "\n"), text); got != want {
			t.Errorf("prefill %s: told %v:\n%s", prefill, got, strings.Join(s.Assumed(), "\n"))
		}
	}
}

// What scales a pool's Deployment among manifests does, with its rules, and else what document 003's
// InferencePool says; the scenario's own autoscaling counts before them.
func TestManifestsScale(t *testing.T) {
	t.Parallel()
	const scaler = `
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: s}
spec:
  scaleTargetRef: {name: one}
  minReplicaCount: 2
  maxReplicaCount: 9
  triggers:
  - {type: prometheus, metadata: {serverAddress: http://prometheus, query: one:queue, threshold: "4"}}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: rules}
spec: {groups: [{name: g, rules: [{record: "one:queue", expr: sum(vllm:num_requests_waiting)}]}]}
`
	document := strings.Replace(served, `apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: one}
spec: {selector: {matchLabels: {app: one}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: epp, port: {number: 9002}}}`, `apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: one}
spec:
  modelName: meta-llama/Llama-3.1-8B-Instruct
  selector: {matchLabels: {app: one}}
  autoscaling: {minReplicas: 2, maxReplicas: 10, targetMetrics: [{type: QueueLength, target: 5}, {type: GPUUtilization, target: 80}, {type: Happiness, target: 1}]}`, 1)
	document = strings.Replace(document, "group: inference.networking.k8s.io", "group: serving.kserve.io", 1)
	const other = `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other}
spec:
  replicas: 1
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one}}
    spec: {containers: [{name: vllm, image: vllm/vllm-openai, args: [--model=meta-llama/Llama-3.1-8B-Instruct, --served-model-name, llama, --max-num-seqs=17, --no-enable-prefix-caching, --lora-modules, sql=/sql]}]}
`
	for _, c := range []struct{ name, manifests, rest, want string }{
		{"a ScaledObject", served + scaler, "", "2 to 9: sum(vllm:num_requests_waiting)"},
		{"the scenario's own", served + scaler,
			"pools: [{name: one, autoscaling: {minReplicas: 1, maxReplicas: 4, triggers: [{name: t, query: " +
				"'sum(vllm:num_requests_running)', target: 3}]}}]\n", "1 to 4: sum(vllm:num_requests_running)"},
		{"document 003's pool", document, "",
			"2 to 10: sum(vllm_gpu_utilization_percent) sum(vllm:num_requests_waiting)"},
		{"a pool of two Deployments", document + other, "", ""},
		{"none", served, "", ""},
	} {
		s, err := withManifests(t, c.manifests, c.rest)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := ""
		for _, d := range s.Pools[0].Deployments() {
			if d.Autoscaling == nil {
				continue
			}
			k := s.scaler(&d)
			got = fmt.Sprintf("%d to %d:", k.Min, k.Max)
			for _, r := range k.Rules {
				got += " " + r.Query.String()
			}
			for _, x := range k.Triggers {
				if len(k.Rules) == 0 {
					got += " " + x.Query.String()
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, expected %s", c.name, got, c.want)
		}
		if notes := strings.Join(s.Assumed(), "\n"); strings.Contains(notes, "autoscaling: no effect") ||
			strings.Contains(notes, "scaleTargetRef") ||
			strings.Contains(notes, "Happiness") != (c.manifests == document) ||
			strings.Contains(notes, "autoscaling has no effect: the pool's pods are of 2 workloads; expected one") != strings.HasSuffix(c.manifests, other) {
			t.Errorf("%s: %s", c.name, notes)
		}
	}
}

func labels(p *Pool, server int) map[string]string { return p.labelsOf(p.DeploymentOf(server), server) }
