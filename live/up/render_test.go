package up

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// pickerWith is the endpoint picker of servers' pool, with a configuration and further containers in its pod.
func pickerWith(pool, config, containers string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: epp-%[1]s}
spec: {selector: {app: epp-%[1]s}, ports: [{port: 9002}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: epp-%[1]s}
data:
  config.yaml: |
%[2]s
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: epp-%[1]s}
spec:
  selector: {matchLabels: {app: epp-%[1]s}}
  template:
    metadata: {labels: {app: epp-%[1]s}}
    spec:
      volumes: [{name: config, configMap: {name: epp-%[1]s}}]
      containers:
      - name: epp
        image: ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0
        args: [--pool-name=%[1]s, --config-file=/config/config.yaml]
        volumeMounts: [{name: config, mountPath: /config}]
%[3]s
`, pool, "    "+strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n    "), containers)
}

const rendering = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: token-producer, parameters: {modelName: m, vllm: {url: "http://%s"}}}
- {type: random-picker}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: random-picker}]}
`

// A picker asks the render server beside it in its pod, or behind a Service, for tokens; a model server's pod has one
// besides the model server.
func TestRenderServers(t *testing.T) {
	t.Parallel()
	const beside = `
      - name: tokens
        image: vllm/vllm-openai-cpu:v0.21.0
        command: [vllm, launch, render]
        args: [m, --port=8000]
`
	const apart = `
---
apiVersion: v1
kind: Service
metadata: {name: vllm-render}
spec: {selector: {app: vllm-render}, ports: [{port: 80, targetPort: 8082}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm-render}
spec:
  selector: {matchLabels: {app: vllm-render}}
  template:
    metadata: {labels: {app: vllm-render}}
    spec: {containers: [{name: r, image: vllm/vllm-openai-cpu, args: [launch, render, m, --port=8082]}]}
`
	text := oneGateway() + servers("a", 1, "") + leadTo("/v1/chat", pool("a")) +
		pickerWith("a", fmt.Sprintf(rendering, "localhost:8000"), beside) +
		servers("b", 1, "") + leadTo("/v1/completions", pool("b")) +
		pickerWith("b", fmt.Sprintf(rendering, "vllm-render:80"), "") + apart +
		strings.Replace(servers("c", 1, ""), "containers: [", `initContainers: [{name: render, restartPolicy: Always, `+
			`image: vllm/vllm-openai-cpu, args: [launch, render, m, --port=8082]}], containers: [`, 1)
	r := bring(t, objectsOf(t, text))
	pods := map[string]PodAddress{}
	for _, p := range r.Addresses().Pods {
		pods[p.Name] = p
	}
	for path, x := range map[string][2]string{
		"/v1/chat/completions": {pods["epp-a-0"].Ports["8000"], fmt.Sprintf(ask, "a")},
		"/v1/completions":      {pods["vllm-render-0"].Ports["8082"], `{"model":"b","prompt":"hi","max_tokens":2}`},
	} {
		if a := r.post(r.url(80)+path, x[1], "Content-Type", "application/json"); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		page := r.do(http.MethodGet, "http://"+x[0]+"/metrics", "").body
		if !strings.Contains(string(page), `http_requests_total{handler="`+path+`/render"`) {
			t.Errorf("%s: the picker has not asked the render server at %q", path, x[0])
		}
	}
	c := pods["c-0"]
	if c.Role != string(gateway.RoleServer) || c.Ports["8000"] == "" || c.Ports["8082"] == c.Ports["8000"] {
		t.Errorf("the pod has a model server and a render server: %+v", c)
	}
	a := r.post("http://"+c.Ports["8082"]+"/v1/completions/render", `{"model":"m","prompt":"one two"}`,
		"Content-Type", "application/json")
	if !strings.Contains(string(a.body), "token_ids") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
