package up

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// Document 003's healthCheck takes a pod out while it fails, and gives it back.
func TestPoolHealthCheck(t *testing.T) {
	t.Parallel()
	var sick atomic.Bool
	sick.Store(true)
	port := "0"
	for i, ip := range []string{"127.0.0.1", "127.0.0.2"} {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, port))
		if err != nil {
			t.Skipf("the machine has one loopback address only: %v", err)
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" && i == 1 && sick.Load() {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "pod %d", i)
		}))
		server.Listener.Close()
		server.Listener = l
		server.Start()
		defer server.Close()
	}
	text := oneGateway() + leadTo("/v1", dict{"group": "serving.kserve.io", "kind": "InferencePool", "name": "one"}) +
		fmt.Sprintf(`
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: one}
spec:
  modelName: m
  selector: {matchLabels: {app: one}}
  targetPorts: [{number: %s}]
  healthCheck: {enabled: true, endpoint: /health, interval: 20ms, timeout: 1s, unhealthyThreshold: 1, healthyThreshold: 1}
`, port)
	for i, ip := range []string{"127.0.0.1", "127.0.0.2"} {
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: p-%d, labels: {app: one}}\nstatus: "+
			"{podIP: %s, conditions: [{type: Ready, status: \"True\"}]}\n", i, ip)
	}
	r := bring(t, objectsOf(t, text))
	n := 0
	ask := func() string {
		n++
		a := r.post(r.url(80)+"/v1/chat/completions", strings.Replace(chat, "hi", fmt.Sprint("question ", n), 1))
		if a.status != http.StatusOK {
			t.Fatalf("%d: %s", a.status, a.body)
		}
		return string(a.body)
	}
	out := func() bool {
		r.applying.Lock()
		defer r.applying.Unlock()
		return slices.Equal(r.ejected["pool/default/one"], []string{net.JoinHostPort("127.0.0.2", port)})
	}
	eventually.Is(t, "the pod that fails its check to be taken out", out)
	for range 20 {
		if got := ask(); got != "pod 0" {
			t.Fatalf("%s answered, although it fails its check", got)
		}
	}
	sick.Store(false)
	eventually.Is(t, "it to be given back", func() bool { return ask() == "pod 1" })
}

// Document 003's routingPolicy decides where no EndpointPickerConfig does, and an edited
// one is in force at once.
func TestRoutingPolicy(t *testing.T) {
	t.Parallel()
	state := func(policy string) *gateway.Set {
		text := oneGateway() + servers("one", 2, "") +
			leadTo("/v1", dict{"group": "serving.kserve.io", "kind": "InferencePool", "name": "routed"}) + `
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: routed}
spec:
  modelName: one
  selector: {matchLabels: {pool: one}}
  targetPorts: [{number: 8000}]
  routingPolicy: ` + policy + "\n"
		return objectsOf(t, text)
	}
	r := bring(t, state(`{type: Dynamic, loadBalancing: {algorithm: round_robin}}`))
	body := `{"model":"one","max_tokens":1,"messages":[{"role":"user","content":"` +
		strings.Repeat("the same question ", 40) + `"}]}`
	ask := func() string {
		a := r.post(r.url(80)+"/v1/chat/completions", body)
		if a.status != http.StatusOK {
			t.Fatalf("%d: %s", a.status, a.body)
		}
		return a.head.Get("x-inference-pod")
	}
	changes := func() (n int) { // of the pod that is asked, in eight requests
		last := ask()
		for range 7 {
			if now := ask(); now != last {
				n, last = n+1, now
			}
		}
		return n
	}
	eventually.Is(t, "both pods to be asked in turn", func() bool { return changes() == 7 })
	if err := r.Apply(t.Context(),
		state(`{type: Dynamic, schedulerProfile: mine, loadBalancing: {algorithm: max_score, weights: {cache_hit: 50,`+
			` load: 0, latency: 0}}}`)); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "the pod that has the prompt to be asked", func() bool { return changes() == 0 })
}

// The inference extension's InferenceModel, before v1: a name for a model, and what
// matters more.
func TestOlderInferenceModel(t *testing.T) {
	t.Parallel()
	const models = `
---
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceModel
metadata: {name: chat}
spec: {modelName: chat, criticality: Critical, poolRef: {name: one}, targetModels: [{name: one, weight: 1}]}
---
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceModel
metadata: {name: batch}
spec: {modelName: batch, criticality: Sheddable, poolRef: {name: one}, targetModels: [{name: one}]}
`
	r := bring(t, objectsOf(t, oneGateway()+servers("one", 1, "")+leadTo("/v1", pool("one"))+models))
	for model, priority := range map[string]string{"chat": `"priority":10`, "batch": `"priority":-10`} {
		var a answer
		eventually.Is(t, model+" to be answered: what can be shed is, while the servers' metrics are not known",
			func() bool {
				a = r.post(r.url(80)+"/v1/chat/completions", fmt.Sprintf(ask, model), "Content-Type",
					"application/json")
				return a.status == http.StatusOK
			})
		one := r.do(http.MethodGet,
			"http://"+r.Addresses().Pickers[0].Metrics+"/debug/decisions?request="+a.head.Get("x-request-id"), "").body
		if compact := strings.ReplaceAll(string(one), " ", ""); !strings.Contains(compact, priority) ||
			!strings.Contains(compact, `"target_model":"one"`) {
			t.Errorf("%s: %s and its target are not in %.500s", model, priority, compact)
		}
	}
}

// Document 003's LocalModel: servers over several machines, for the pool of its model.
func TestLocalModel(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t,
		oneGateway()+leadTo("/v1", dict{"group": "serving.kserve.io", "kind": "InferencePool", "name": "p"})+`
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: p}
spec: {modelName: meta-llama/Llama-2-70b-hf, selector: {matchLabels: {model: llama}}, targetPorts: [{number: 8000}]}
---
apiVersion: serving.kserve.io/v1alpha1
kind: LocalModel
metadata: {name: llama-70b-distributed}
spec:
  modelName: meta-llama/Llama-2-70b-hf
  tensorParallelism: {size: 4}
  resources: {limits: {nvidia.com/gpu: 1, memory: 90Gi}, requests: {nvidia.com/gpu: 1, memory: 80Gi}}
  replicas: 4
  runtimeSpec: {protocol: open_inference_protocol, env: [{name: NCCL_IB_DISABLE, value: "0"}, {name: NCCL_DEBUG, value: INFO}]}
`))
	a := r.post(r.url(80)+"/v1/chat/completions", fmt.Sprintf(ask, "meta-llama/Llama-2-70b-hf"), "Content-Type",
		"application/json")
	if a.status != http.StatusOK || len(r.Addresses().Pods) != 1 {
		t.Errorf("%d of %d pods: %s", a.status, len(r.Addresses().Pods), a.body)
	}
}

// Document 003's inferenceParams: no answer has more than max_tokens, and one may have fewer.
func TestInferenceParams(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, ofModel("{replicas: 1}, inferenceParams: {max_tokens: 3}")))
	for asked, want := range map[string]string{"9": `"completion_tokens":3`, "2": `"completion_tokens":2`} {
		a := r.post(r.url(80)+"/v1/completions", `{"model":"m","prompt":"a","ignore_eos":true,"max_tokens":`+asked+`}`,
			"Content-Type", "application/json")
		if !strings.Contains(string(a.body), want) {
			t.Errorf("max_tokens %s: %d %s", asked, a.status, a.body)
		}
	}
	if a := r.post(r.url(80)+"/v1/completions", `{"model":"m","prompt":"a","min_tokens":4,"max_tokens":9}`,
		"Content-Type", "application/json"); a.status != http.StatusBadRequest ||
		!strings.Contains(string(a.body), "max_tokens=3") {
		t.Errorf("min_tokens above the limit: %d %s", a.status, a.body)
	}
}

// Document 003's connector.config: where model servers are asked for their KV caches, and how many
// bytes travel.
func TestConnectorConfig(t *testing.T) {
	t.Parallel()
	bytes := func(config string) (sent float64, port int) {
		text := oneGateway() + leadTo("/v1", dict{"group": "serving.kserve.io", "kind": "InferencePool", "name": "p"}) +
			`
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: p}
spec: {modelName: m, selector: {matchLabels: {model: m}}, disaggregation: {enabled: true, connector: {type: nixlv2, config: {` + config + `}}}}
`
		for _, name := range []string{"decode", "prefill"} {
			text += fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s, model: m, llm-d.ai/role: %[1]s}}
    spec: {containers: [{name: vllm, image: vllm/vllm-openai, args: [--model=m, '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}']}]}
`, name)
		}
		r := bring(t, objectsOf(t, text))
		at := map[string]string{}
		for _, p := range r.Addresses().Pods {
			at[p.Name] = "http://" + p.Ports["8000"]
		}
		prompt := strings.Repeat("a long question ", 100)
		first := r.post(at["prefill-0"]+"/v1/completions",
			`{"model":"m","max_tokens":1,"prompt":"`+prompt+`","kv_transfer_params":{"do_remote_decode":true}}`,
			"Content-Type", "application/json")
		var kept struct {
			Params map[string]any `json:"kv_transfer_params"`
		}
		if err := json.Unmarshal(first.body, &kept); err != nil || kept.Params["remote_port"] == nil {
			t.Fatalf("%d: %s", first.status, first.body)
		}
		port = int(kept.Params["remote_port"].(float64))
		params, err := json.Marshal(kept.Params)
		if err != nil {
			t.Fatal(err)
		}
		if a := r.post(at["decode-0"]+"/v1/completions",
			`{"model":"m","max_tokens":2,"prompt":"`+prompt+`","kv_transfer_params":`+string(params)+`}`,
			"Content-Type", "application/json"); a.status != http.StatusOK {
			t.Fatalf("%d: %s", a.status, a.body)
		}
		for line := range strings.Lines(string(r.do(http.MethodGet, at["decode-0"]+"/metrics", "").body)) {
			if strings.HasPrefix(line, "vllm:nixl_bytes_transferred_sum") {
				fields := strings.Fields(line)
				if sent, err = strconv.ParseFloat(fields[len(fields)-1], 64); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !r.addresses.Own() {
			port = 0 // pods share an address, and have ports of their own
		}
		return sent, port
	}
	whole, _ := bytes("")
	half, port := bytes(`compressionEnabled: true, sideChannelPortRange: "5555-5556"`)
	if whole == 0 || half*2 != whole {
		t.Errorf("%v bytes, with compression %v", whole, half)
	}
	if port != 0 && port != 5555 {
		t.Errorf("caches are asked for at port %d, expected 5555", port)
	}
}

// A sidecar counts the bytes that its prefills bring, in blocks of its own pod's model server.
func TestSidecarCountsTransferredBytes(t *testing.T) {
	t.Parallel()
	r := bringWith(t, Options{Sidecar: sidecarOf, Objects: objectsOf(t, ofModel(
		"{type: Disaggregated, prefillWorkers: {replicas: 1, labels: {llm-d.ai/role: prefill}}, decodeWorkers: "+
			"{replicas: 1, labels: {llm-d.ai/role: decode}}}"))})
	at := map[string]string{}
	for _, p := range r.Addresses().Pods {
		at[p.Name] = p.Ports["8000"]
	}
	sidecar := "http://" + at["m-decode-0"]
	prompt := strings.Repeat("a long question ", 100)
	if a := r.post(sidecar+"/v1/completions", `{"model":"m","max_tokens":2,"prompt":"`+prompt+`"}`, "Content-Type",
		"application/json", "x-prefiller-host-port", at["m-prefill-0"]); a.status != http.StatusOK {
		t.Fatalf("%d: %s", a.status, a.body)
	}
	eventually.Is(t, "the bytes of the transfer", func() bool {
		page := string(r.do(http.MethodGet, sidecar+"/metrics", "").body)
		return strings.Contains(page, "\nllmd_sidecar_kv_cache_transfer_bytes ") &&
			!strings.Contains(page, "\nllmd_sidecar_kv_cache_transfer_bytes 0\n")
	})
}
