package up

import (
	"net/http"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// SGLang's own command line comes up, and a picker with defaultEngine sglang reads its metrics: it sends a request to
// the pod that has none running.
func TestSGLangPool(t *testing.T) {
	t.Parallel()
	const config = `{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig","plugins":[` +
		`{"type":"metrics-data-source"},{"type":"core-metrics-extractor","parameters":{"defaultEngine":"sglang"}},` +
		`{"type":"running-requests-size-scorer"},{"type":"max-score-picker"}],` +
		`"dataLayer":{"sources":[{"pluginRef":"metrics-data-source",` +
		`"extractors":[{"pluginRef":"core-metrics-extractor"}]}]},"schedulingProfiles":[{"name":"default",` +
		`"plugins":[{"pluginRef":"running-requests-size-scorer"},{"pluginRef":"max-score-picker"}]}]}`
	r := bring(t, objectsOf(t, oneGateway()+leadTo("/v1", pool("sgl"))+
		pickerOf("sgl", 1, ", --config-text, '"+config+"'")+`
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: sgl}
spec:
  selector: {matchLabels: {app: sgl}}
  targetPorts: [{number: 30000}]
  endpointPickerRef: {name: epp-sgl, port: {number: 9002}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: sgl}
spec:
  replicas: 2
  selector: {matchLabels: {app: sgl}}
  template:
    metadata: {labels: {app: sgl, llm-d.ai/engine-type: sglang}}
    spec:
      containers:
        - name: server
          image: lmsysorg/sglang:v0.5.6
          command: [python3, -m, sglang.launch_server]
          # A second token never comes.
          args: [--model-path, m, --enable-metrics, --page-size, "64", --mem-fraction-static, "0.8", --tp, "1",
            --chunked-prefill-size, "4096", --time-to-first-token, "1", --inter-token-latency, "3600000"]
          ports: [{containerPort: 30000}]
`))
	at := r.url(80) + "/v1/chat/completions"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at,
		strings.NewReader(`{"model":"m","stream":true,"max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	busy := resp.Header.Get("X-Inference-Pod")
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK || busy == "" {
		t.Fatalf("%d from %q: %v", resp.StatusCode, busy, err)
	}
	page := "http://" + r.Addresses().Pickers[0].Metrics + "/metrics"
	eventually.Is(t, "the picker to see one request at two pods", func() bool {
		for line := range strings.Lines(string(r.do(http.MethodGet, page, "").body)) {
			if strings.Contains(line, "average_running_requests{") && strings.HasSuffix(line, " 0.5\n") {
				return true
			}
		}
		return false
	})
	a := r.post(at, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"ho"}]}`)
	if a.status != http.StatusOK || a.head.Get("X-Inference-Pod") == busy {
		t.Errorf("%d from %s, where a request runs: %s", a.status, busy, a.body)
	}
}
