package up

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A Pod that no workload makes runs: its command line has variables that are not set, its flags stand in a ConfigMap,
// with numbers as Helm writes them, and what of them has no effect is reported once.
func TestBarePod(t *testing.T) {
	t.Parallel()
	text := oneGateway() + leadTo("/v1", pool("a")) + strings.Split(servers("a", 1, ""), "---\napiVersion: apps")[0] + `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: sim}
data:
  config.yaml: |
    model: tiny
    port: 8000
    seed: 1.001001e+08
    max-model-len: 1.2288e+04
---
apiVersion: v1
kind: Pod
metadata: {name: alone, labels: {pool: a, llm-d.ai/role: }}
spec:
  volumes: [{name: config, configMap: {name: sim}}]
  containers:
  - name: vllm
    image: ghcr.io/llm-d/llm-d-inference-sim:v0.10.2
    args: [--config=/config/config.yaml, "", --hash-salt=1]
    volumeMounts: [{name: config, mountPath: /config}]
`
	r := bring(t, objectsOf(t, text))
	a := r.post(r.url(80)+"/v1/chat/completions", fmt.Sprintf(ask, "tiny"), "Content-Type", "application/json")
	if a.status != http.StatusOK || a.head.Get("x-inference-pod") != "alone" {
		t.Errorf("%d from %q: %s", a.status, a.head.Get("x-inference-pod"), a.body)
	}
	models := r.do(http.MethodGet, r.url(80)+"/v1/models", "")
	if !strings.Contains(string(models.body), `"max_model_len":12288`) {
		t.Errorf("%s", models.body)
	}
	const told = "given-a.yaml:34: container vllm: flags without effect: --hash-salt"
	if n := len(slices.DeleteFunc(slices.Clone(r.notes), func(s string) bool { return s != told })); n != 1 {
		t.Errorf("%d notes are %q:\n%s", n, told, strings.Join(r.notes, "\n"))
	}
}
