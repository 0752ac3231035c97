package up

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/windtunnel/windtunnel/core/gateway"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/windtunnel/windtunnel/internal/child.startChildren"))
}

// objects reads files of examples/manifests, or manifests as text.
func objectsOf(t *testing.T, paths ...string) *gateway.Set {
	t.Helper()
	s := &gateway.Set{}
	for i, path := range paths {
		var err error
		if strings.Contains(path, "\n") {
			err = s.Add("given-"+string(rune('a'+i))+".yaml", []byte(path))
		} else {
			s, err = Load([]string{"../../examples/manifests/" + path}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

type rig struct {
	*Up
	t     *testing.T
	notes []string
}

// bring brings objects up with addresses of the test's own.
func bring(t *testing.T, s *gateway.Set) *rig {
	t.Helper()
	return bringWith(t, Options{Objects: s})
}

func bringWith(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{t: t}
	dir, err := os.MkdirTemp("", "windtunnel-up-*")
	if err != nil {
		t.Fatal(err)
	}
	o.Dir, o.OwnAddresses, o.Note = dir, true, func(text string) { r.notes = append(r.notes, text) }
	u, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s in %s", err, strings.Join(r.notes, "\n"), dir)
	}
	r.Up = u
	t.Cleanup(func() {
		if err := u.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log("Envoy's files are kept in", dir, "notes:", strings.Join(r.notes, "\n"))
			return
		}
		os.RemoveAll(dir)
	})
	return r
}

// url is where a port of the only Gateway listens.
func (r *rig) url(port int) string {
	r.t.Helper()
	for _, l := range r.Addresses().Listeners {
		if l.Port == port {
			return l.URL
		}
	}
	r.t.Fatalf("no listener on port %d: %+v", port, r.Addresses().Listeners)
	return ""
}

type answer struct {
	status int
	head   http.Header
	body   []byte
}

func (r *rig) post(url, body string, headers ...string) answer {
	r.t.Helper()
	return r.do(http.MethodPost, url, body, headers...)
}

func (r *rig) do(method, url, body string, headers ...string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, text}
}

// Document 002's walk: /default/my-llm/v1/chat/completions comes to the Gateway on
// port 80, is rewritten, and is answered by the pod that the scheduler picked.
func TestDocument002Walk(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, "document-002"))
	const body = `{"model":"llama-3-8b","max_tokens":3,"messages":[{"role":"user","content":"Hello!"}]}`
	at := r.url(80)
	pods := map[string]bool{}
	for range 6 {
		a := r.post(at+"/default/my-llm/v1/chat/completions", body, "Content-Type", "application/json")
		var chat struct {
			Object string
			Model  string
			Usage  struct {
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal(a.body, &chat); err != nil || a.status != http.StatusOK ||
			chat.Object != "chat.completion" || chat.Model != "llama-3-8b" || chat.Usage.Completion != 3 {
			t.Fatalf("status %d: %s (%v)", a.status, a.body, err)
		}
		pods[a.head.Get("x-inference-pod")] = true
	}
	if a := r.post(at+"/default/other/v1/chat/completions", body); a.status != http.StatusNotFound {
		t.Errorf("another path: status %d: %s", a.status, a.body)
	}
	if a := r.post(at+"/default/my-llmx/v1/chat/completions", body); a.status != http.StatusNotFound {
		t.Errorf("a path that only begins like the prefix: status %d: %s", a.status, a.body)
	}
	if !bytes.Contains([]byte(strings.Join(r.notes, "\n")), []byte("my-llm-epp-service")) {
		t.Errorf("nothing says that the picker's Service is missing:\n%s", strings.Join(r.notes, "\n"))
	}
}

// The shape of the inference extension's guide: a pool whose picker has a Deployment,
// Service and ConfigMap, its servers' adapters, and an objective.
func TestInferenceExtensionGuide(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, "inference-extension"))
	if len(r.notes) > 0 {
		t.Errorf("nothing is to be made up or left out:\n%s", strings.Join(r.notes, "\n"))
	}
	for _, model := range []string{"meta-llama/Llama-3.1-8B-Instruct", "food-review-1"} {
		a := r.post(r.url(80)+"/v1/completions",
			`{"model":"`+model+`","prompt":"Write as if you were a critic: San Francisco","max_tokens":5}`,
			"Content-Type", "application/json", "x-gateway-inference-objective", "food-review")
		if a.status != http.StatusOK || !bytes.Contains(a.body, []byte(`"model":"`+model+`"`)) {
			t.Errorf("%s: %d: %s", model, a.status, a.body)
		}
	}
	if a := r.post(r.url(80)+"/v1/completions", `{"model":"unknown","prompt":"x"}`, "Content-Type",
		"application/json"); a.status != http.StatusNotFound {
		t.Errorf("an unknown model: %d", a.status)
	}
}

// What the Gateway API's guides show: paths, headers, a split, a redirect, and a
// grant between namespaces.
func TestHTTPRoutingGuide(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, "http-routing"))
	at := r.url(80)
	get := func(host, path string, headers ...string) (pod string, a answer) {
		a = r.do(http.MethodGet, at+path, "", append([]string{"Host", host}, headers...)...)
		pod, _ = a.pod()
		return pod, a
	}
	for range 5 {
		if pod, _ := get("web.example.com", "/login"); !strings.HasPrefix(pod, "web-v1-") {
			t.Errorf("/login: %s", pod)
		}
		if pod, _ := get("web.example.com", "/", "version", "next"); pod != "web-v2-0" {
			t.Errorf("version: next: %s", pod)
		}
	}
	if pod, a := get("web.example.com", "/orders/7"); pod != "orders-0" ||
		!bytes.Contains(a.body, []byte(`"X-From":["gateway"]`)) {
		t.Errorf("/orders: %s: %s", pod, a.body)
	}
	split := map[string]int{}
	for range 100 {
		pod, _ := get("web.example.com", "/")
		split[pod[:min(6, len(pod))]]++
	}
	if split["web-v1"] < 75 || split["web-v2"] < 1 || len(split) != 2 {
		t.Errorf("of 100 requests: %v; expected about 90 at web-v1", split)
	}
	_, a := get("secure.example.com", "/x")
	if to := a.head.Get("Location"); a.status != http.StatusMovedPermanently || to != "https://secure.example.com/x" {
		t.Errorf("redirect: %d to %s", a.status, to)
	}
	if _, a := get("other.org", "/"); a.status != http.StatusNotFound {
		t.Errorf("another host: %d", a.status)
	}
}

// A Service's requests go to pods that name no port, and to what EndpointSlices say.
func TestPortsThatOnlyServicesName(t *testing.T) {
	t.Parallel()
	const manifests = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: ours}
spec: {controllerName: example.com/c}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec: {gatewayClassName: ours, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: g}]
  rules:
  - {matches: [{path: {value: /sliced}}], backendRefs: [{name: sliced, port: 80}]}
  - {matches: [{path: {value: /more}}], backendRefs: [{name: more, port: 80}]}
  - {backendRefs: [{name: web, port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: example.com/web}]}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 3000}]}
---
apiVersion: v1
kind: Service
metadata: {name: sliced}
spec: {ports: [{name: http, port: 80}]}
`
	const more = `
apiVersion: v1
kind: Service
metadata: {name: more}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 3001}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sliced-1, labels: {kubernetes.io/service-name: sliced}}
addressType: IPv4
ports: [{name: http, port: %s}]
endpoints:
- {addresses: [127.0.0.1], conditions: {ready: true}}
- {addresses: [127.0.0.2], conditions: {ready: false}}
`
	r := bring(t, objectsOf(t, manifests))
	ask := func(path string) int {
		t.Helper()
		response, err := http.Get(r.url(80) + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	if got := ask("/"); got != 200 {
		t.Errorf("the pod at a port that its Service names: %d, want 200", got)
	}
	if got := ask("/sliced"); got != 503 {
		t.Errorf("a Service without endpoints: %d, want 503", got)
	}
	beside := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer beside.Close()
	_, port, _ := net.SplitHostPort(beside.Listener.Addr().String())
	if err := r.Apply(t.Context(), objectsOf(t, manifests, fmt.Sprintf("\n"+more, port))); err != nil {
		t.Fatal(err)
	}
	if got := ask("/sliced"); got != http.StatusTeapot {
		t.Errorf("a Service with an EndpointSlice: %d, want 418", got)
	}
	if got := ask("/more"); got != 200 {
		t.Errorf("the pod at a port that a Service asked for later: %d, want 200", got)
	}
}
