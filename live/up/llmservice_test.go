package up

import (
	"net/http"
	"strings"
	"testing"
)

// An LLMInferenceService comes up alone: its prefill and decode servers answer below its path and its publisher's.
func TestLLMInferenceService(t *testing.T) {
	t.Parallel()
	r := bringWith(t, Options{Sidecar: sidecarOf, Objects: objectsOf(t, `
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: qwen, namespace: team}
spec:
  model: {uri: "hf://Qwen/Qwen3-8B", name: qwen3}
  replicas: 2
  router: {route: {}, gateway: {}, scheduler: {}}
  template:
    containers:
    - name: main
      env: [{name: VLLM_ADDITIONAL_ARGS, value: "--kv_transfer_config '{\"kv_connector\": \"NixlConnector\", \"kv_role\": \"kv_both\"}'"}]
  prefill:
    template:
      containers:
      - name: main
        args: [--kv-transfer-config, '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}']
`)})
	roles := map[string]bool{}
	for _, path := range []string{"/team/qwen", "/publishers/team/models/qwen3"} {
		a := r.post(r.url(80)+path+"/v1/completions", `{"model":"qwen3","prompt":"hello","max_tokens":2}`,
			"Content-Type", "application/json")
		if a.status != http.StatusOK || !strings.HasPrefix(a.head.Get("x-inference-pod"), "qwen-kserve-") {
			t.Errorf("%s: %d from %q: %s", path, a.status, a.head.Get("x-inference-pod"), a.body)
		}
		if a := r.do(http.MethodGet, r.url(80)+path+"/v1/models", ""); !strings.Contains(string(a.body), "qwen3") {
			t.Errorf("%s: the models: %d %s", path, a.status, a.body)
		}
	}
	for _, p := range r.Addresses().Pods {
		roles[strings.TrimRight(p.Name, "0123456789-")] = p.Sidecar != ""
	}
	if len(roles) != 2 || !roles["qwen-kserve"] || roles["qwen-kserve-prefill"] {
		t.Errorf("expected decode servers with sidecars, and prefill servers, got %v", roles)
	}
}
