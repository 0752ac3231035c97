package up

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// engines are a Deployment of model servers without a pool, and the Service of the endpoint picker that selects them.
const engines = `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 2
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: vllm, image: ghcr.io/llm-d/llm-d-inference-sim, args: [--model=%[1]s]}]}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s-epp}
spec: {selector: {app: %[1]s-epp}, ports: [{port: 9002, name: grpc}, {port: 8081, name: http}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s-proxy}
data:
  config.yaml: |
%[2]s
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s-epp}
spec:
  selector: {matchLabels: {app: %[1]s-epp}}
  template:
    metadata: {labels: {app: %[1]s-epp}}
    spec:
      volumes: [{name: proxy, configMap: {name: %[1]s-proxy}}]
      containers:
      - {name: epp, image: ghcr.io/llm-d/llm-d-router-endpoint-picker, args: [--endpoint-selector, app=%[1]s, --endpoint-target-ports, "8000"]}
`

const proxyContainer = `
      - {name: %s, image: %[1]s, args: [%s, /config/config.yaml], volumeMounts: [{name: proxy, mountPath: /config}]}
`

// An Envoy beside a picker, and an agentgateway in a Deployment of its own, are Gateways at the ports of their
// configurations: the pods that the picker's flags select answer, and no other server runs for the proxy.
func TestStandaloneProxies(t *testing.T) {
	t.Parallel()
	const cluster = `{name: %s, type: %s, load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: ` +
		`{socket_address: {address: 127.0.0.1, port_value: 9002}}}}]}]}}`
	envoy := `
static_resources:
  listeners:
  - name: vllm
    address: {socket_address: {address: 0.0.0.0, port_value: 8081}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          route_config:
            virtual_hosts: [{domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: destination}}]}]
          http_filters:
          - {name: envoy.filters.http.ext_proc, typed_config: {grpc_service: {envoy_grpc: {cluster_name: ext_proc}}}}
  clusters:
  - {name: destination, type: ORIGINAL_DST}
  - ` + fmt.Sprintf(cluster, "ext_proc", "STATIC")
	const agent = `
binds:
- port: 8081
  listeners:
  - protocol: HTTP
    routes:
    - matches: [{path: {pathPrefix: /}}]
      backends:
      - service: {name: default/b, port: 8000}
        policies: {inferenceRouting: {endpointPicker: {host: "b-epp.default:9002"}}}
`
	indented := func(text string) string { return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") }
	own := fmt.Sprintf(engines, "b", indented(agent)) + `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: b-proxy}
spec:
  replicas: 2
  selector: {matchLabels: {app: b-proxy}}
  template:
    metadata: {labels: {app: b-proxy}}
    spec:
      volumes: [{name: proxy, configMap: {name: b-proxy}}]
      containers:` + fmt.Sprintf(proxyContainer, "agentgateway", "-f")
	beside := fmt.Sprintf(engines, "a", indented(envoy)) + fmt.Sprintf(proxyContainer, "envoy", "-c")
	r := bring(t, objectsOf(t, beside+own))
	listeners := r.Addresses().Listeners
	if len(listeners) != 2 {
		t.Fatalf("expected a listener of each proxy, got %+v", listeners)
	}
	for i, model := range []string{"a", "b"} {
		if listeners[i].Port != 8081 {
			t.Errorf("%+v: expected port 8081", listeners[i])
		}
		for range 3 {
			a := r.post(listeners[i].URL+"/v1/chat/completions", fmt.Sprintf(ask, model),
				"Content-Type", "application/json")
			if pod := a.head.Get("x-inference-pod"); a.status != http.StatusOK || !strings.HasPrefix(pod, model+"-") {
				t.Errorf("%s: %d from %q: %s", model, a.status, pod, a.body)
			}
		}
	}
	for _, p := range r.Addresses().Pods {
		if !strings.HasPrefix(p.Name, "a-") && !strings.HasPrefix(p.Name, "b-") || strings.Contains(p.Name, "proxy") {
			t.Errorf("pod %s: expected the model servers alone", p.Name)
		}
	}
}
