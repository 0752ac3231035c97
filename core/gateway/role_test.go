package gateway_test

import (
	"strings"
	"testing"

	. "github.com/windtunnel/windtunnel/core/gateway"
)

// A container is taken for what its command says, else its flags, its name, and at last the longest known word of its
// image.
func TestRoles(t *testing.T) {
	for _, x := range []struct {
		name, image, command, args string
		role                       Role
		by                         string
	}{
		{"sidecar", "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.10.0", "", "--port=8000", RoleSidecar, "image"},
		{"proxy", "ghcr.io/llm-d/llm-d", "/llm-d-routing-sidecar", "-port=8000", RoleSidecar, "command"},
		{"proxy", "ghcr.io/llm-d/llm-d:0.0.8", "", "-vllm-port=8001", RoleSidecar, "flag --vllm-port"},
		{"c", "ghcr.io/llm-d/llm-d-router-coordinator:dev", "", "--config /etc/c.yaml", RoleOther, "image"},
		{"c", "ghcr.io/llm-d/llm-d-router-endpoint-picker@sha256:01", "", "", RolePicker, "image"},
		{"c", "example.com/mine", "", "--pool-name p", RolePicker, "flag --pool-name"},
		{"c", "example.com/mine", "", "--endpoint-selector app=x", RolePicker, "flag --endpoint-selector"},
		{"epp", "example.com/mine", "", "", RolePicker, "name"},
		{"c", "example.com/vllm/lwepp:main", "", "", RolePicker, "image"},
		{"s", "vllm/vllm-openai-cpu:v0.21.0", "vllm launch render", "m --port=8082", RoleRenderer, "command"},
		{"s", "vllm/vllm-openai-cpu:v0.21.0", "", "launch render m --port=8082", RoleRenderer, "command"},
		{"vllm-render", "example.com/mine", "", "m", RoleRenderer, "name"},
		{"s", "vllm/vllm-openai:v0.21.0", "", "org/launch-render --port=8082", RoleServer, "image"},
		{"s", "lmsysorg/sglang:v0.5.12", "python3 -m sglang.launch_server", "--model-path m", RoleServer, "command"},
		{"s", "example.com/mine", "", "--model-path m", RoleServer, "flag --model-path"},
		{"s", "ghcr.io/llm-d/llm-d-cuda:v0.3.1", "", "", RoleServer, "image"},
		{"s", "ghcr.io/llm-d/llm-d:0.0.8", "", "", RoleServer, "image"},
		{"s", "ghcr.io/llm-d/llm-d-benchmark:v1", "", "", RoleOther, ""},
		{"s", "ghcr.io/llm-d/llm-d-uds-tokenizer:vllm-v0.19.1", "", "", RoleOther, "image"},
		{"s", "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1", "python3 -m dynamo.frontend", "", RoleOther, "command"},
		{"s", "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1", "python3 -m dynamo.vllm", "--model m", RoleServer, "command"},
		{"training-server", "example.com/latency:1", "", "", RoleTrainer, "name"},
		{"p", "example.com/l:1", "uvicorn", "llm_d_latency_predictor.prediction_server:app --port 8001", RolePredictor,
			"command"},
		{"proxy", "docker.io/envoyproxy/envoy:distroless-v1.33.2", "", "--config-path /e.yaml", RoleProxy, "image"},
		{"proxy", "cr.agentgateway.dev/agentgateway:latest-dev", "", "-f /config/config.yaml", RoleProxy, "image"},
		{"web", "nginx:1.27", "", "", RoleOther, ""},
	} {
		c := Container{Name: x.name, Image: x.image, Command: strings.Fields(x.command), Args: strings.Fields(x.args)}
		if role, by := c.Taken(); role != x.role || by != x.by {
			t.Errorf("%+v: taken for %q by its %q; want %q by its %q", x, role, by, x.role, x.by)
		}
	}
}

// A pod is for the model server in it, wherever it stands; what stands beside a picker answers nobody, unless it
// renders.
func TestServes(t *testing.T) {
	for _, x := range []struct{ names, want string }{
		{"vllm-render vllm", "vllm"}, {"vllm vllm-render", "vllm"}, {"other vllm-render", "vllm-render"},
		{"epp vllm-render other", "vllm-render"}, {"epp other envoy", ""}, {"bbr other", ""}, {"other", "other"},
		{"routing-sidecar", ""}, {"kv-cache-manager", "kv-cache-manager"},
	} {
		var w Workload
		for _, name := range strings.Fields(x.names) {
			w.Containers = append(w.Containers, Container{Name: name})
		}
		got := ""
		if c, _ := w.Serves(); c != nil {
			got = c.Name
		}
		if got != x.want {
			t.Errorf("a pod of %s is for %q; want %q", x.names, got, x.want)
		}
	}
}
