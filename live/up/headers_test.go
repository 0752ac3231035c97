package up

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// headersPool is a pool whose servers are chosen by what they have cached, and by their
// queues.
func headersPool() string {
	return strings.Replace(servers("one", 3, ""), "ghcr.io/llm-d/llm-d-inference-sim", "vllm/vllm-openai", 1) + `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: epp-one}
data:
  c.yaml: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
    plugins:
    - type: prefix-cache-scorer
    - type: queue-scorer
    schedulingProfiles:
    - name: default
      plugins: [{pluginRef: prefix-cache-scorer, weight: 1}, {pluginRef: queue-scorer, weight: 3}]
`
}

// Document 003's response headers are all there, they fit together, and they say what
// the picker's own record says.
func TestDocumentResponseHeaders(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, oneGateway()+headersPool()+leadTo("/v1", pool("one"))))
	at := r.url(80) + "/v1/chat/completions"
	body := fmt.Sprintf(`{"model":"one","max_tokens":5,"messages":[{"role":"user","content":"%s"}]}`,
		strings.Repeat("a long prompt ", 100))
	var a answer
	for range 2 {
		a = r.post(at, body, "Content-Type", "application/json")
	}
	if a.status != http.StatusOK {
		t.Fatalf("%d: %s", a.status, a.body)
	}
	for _, name := range []string{"x-selected-pod", "x-decode-pod", "x-cache-hit", "x-cache-prefix-length",
		"x-scheduling-time-ms", "x-filter-time-ms", "x-scorer-time-ms",
		"x-prefill-time-ms", "x-decode-time-ms", "x-total-time-ms", "x-tokens-generated", "x-tokens-per-second",
		"x-request-id", "x-trace-id"} {
		if a.head.Get(name) == "" {
			t.Errorf("no %s", name)
		}
	}
	number := func(name string) float64 {
		v, err := strconv.ParseFloat(a.head.Get(name), 64)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return v
	}
	var chat struct {
		Usage struct {
			Completion int `json:"completion_tokens"`
			Prompt     int `json:"prompt_tokens"`
		}
	}
	if err := json.Unmarshal(a.body, &chat); err != nil || int(number("x-tokens-generated")) != chat.Usage.Completion {
		t.Errorf("x-tokens-generated %v, and usage %+v (%v)", number("x-tokens-generated"), chat.Usage, err)
	}
	if pod := a.head.Get("x-inference-pod"); !strings.HasPrefix(a.head.Get("x-selected-pod"), pod) ||
		a.head.Get("x-decode-pod") != a.head.Get("x-selected-pod") {
		t.Errorf("x-selected-pod %s, x-decode-pod %s; %s answered", a.head.Get("x-selected-pod"),
			a.head.Get("x-decode-pod"), pod)
	}
	if n := number("x-cache-prefix-length"); a.head.Get("x-cache-hit") != "true" || n <= 0 ||
		int(n) > 2*chat.Usage.Prompt {
		t.Errorf("the second time: x-cache-hit %s, x-cache-prefix-length %v of %d tokens", a.head.Get("x-cache-hit"), n,
			chat.Usage.Prompt)
	}
	if sum := number("x-prefill-time-ms") + number("x-decode-time-ms"); sum > number("x-total-time-ms")+0.01 {
		t.Errorf("prefill and decode take %v ms, and all %v ms", sum, number("x-total-time-ms"))
	}
	if number("x-filter-time-ms")+number("x-scorer-time-ms") > number("x-scheduling-time-ms") {
		t.Errorf("filters and scorers take longer than the decision: %v", a.head)
	}
	record := r.do(http.MethodGet, "http://"+r.Addresses().Pickers[0].Metrics+"/debug/decisions", "").body
	if id := a.head.Get("x-request-id"); !bytes.Contains(record, []byte(id)) {
		t.Errorf("the picker's record does not have request %s: %.300s", id, record)
	}
	if got := strings.ReplaceAll(a.head.Get("x-request-id"), "-", ""); a.head.Get("x-trace-id") != got {
		t.Errorf("x-trace-id %s of request %s", a.head.Get("x-trace-id"), got)
	}
}

// What clients ask for in document 003's headers acts, up to what the policies say.
func TestClientHeaders(t *testing.T) {
	t.Parallel()
	retry := dict{"timeout": dict{"request": "6s"},
		"retry": dict{"numRetries": 2, "retryOn": []string{"5xx"},
			"backoff": dict{"baseInterval": "1ms", "maxInterval": "2ms"}}}
	r := bring(t, objectsOf(t,
		oneGateway()+echoes("one", 2)+leadTo("/v1", pool("one"))+policy("HTTPRoute", "r-v1", retry)))
	at := r.url(80) + "/v1/chat/completions"
	for _, c := range []struct {
		asked, delay string
		status       int
	}{{"100ms", "30s", http.StatusGatewayTimeout}, {"1h", "30s", http.StatusGatewayTimeout},
		{"", "300ms", http.StatusOK}, {"soon", "300ms", http.StatusOK}, {"20s", "300ms", http.StatusOK}} {
		began := time.Now()
		if a := r.post(at, chat, "X-Request-Timeout", c.asked, "X-Echo-Delay", c.delay, "X-Max-Retries",
			"0"); a.status != c.status {
			t.Errorf("x-request-timeout %q, with an answer after %s: %d, expected %d after %v", c.asked, c.delay,
				a.status, c.status, time.Since(began))
		}
	}
	for asked, attempts := range map[string]string{"0": "1", "1": "2", "2": "3", "50": "3", "": "3", "many": "3",
		"-1": "3"} {
		a := r.post(at, chat, "X-Max-Retries", asked, "X-Echo-Status", "503")
		if _, attempt := a.pod(); attempt != attempts {
			t.Errorf("x-max-retries %q: %s attempts, expected %s (status %d)", asked, attempt, attempts, a.status)
		}
	}
	internal := []string{"X-Prefiller-Host-Port", "X-Envoy-Max-Retries", "X-Gateway-Worker-Id",
		"X-Dynamo-Worker-Instance-Id", "X-Dynamo-Dp-Rank", "X-Dynamo-Prefill-Instance-Id", "X-Dynamo-Prefill-Dp-Rank",
		"X-Dynamo-Routing-Mode"}
	head := []string{"X-Model-Override", "other", "x-selected-pod", "mine", "x-gateway-destination-endpoint",
		"10.0.0.1:1"}
	for _, name := range internal {
		head = append(head, name, "7")
	}
	a := r.post(at, chat, head...)
	var e echoed
	if err := json.Unmarshal(a.body, &e); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d: %s (%v)", a.status, a.body, err)
	}
	for _, name := range internal {
		if v := e.Headers[name]; len(v) > 0 {
			t.Errorf("a client's own %s reached the pod: %v", name, v)
		}
	}
	if v := e.Headers["X-Selected-Pod"]; slices.Contains(v, "mine") {
		t.Errorf("a client's own x-selected-pod reached the pod: %v", v)
	}
}

// A priority and a model that clients ask for are those that the picker decides with.
func TestPriorityAndModelByHeader(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, oneGateway()+headersPool()+leadTo("/v1", pool("one"))))
	at := r.url(80) + "/v1/chat/completions"
	const asksOther = `{"model":"gone","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`
	for asked, want := range map[string]string{"high": `"priority":10`, "low": `"priority":-10`, "3": `"priority":3`,
		"5000": `"priority":10`} {
		var a answer
		// Until the picker has metrics, the pool counts as saturated, and requests of a low priority are dropped.
		eventually.Is(t, "an answer other than 429", func() bool {
			a = r.post(at, asksOther, "X-Priority", asked, "X-Model-Override", "one", "X-Cache-Policy", "prefer-hit")
			return a.status != http.StatusTooManyRequests
		})
		if a.status != http.StatusOK {
			t.Fatalf("x-priority %s, x-model-override one: %d: %s", asked, a.status, a.body)
		}
		one := r.do(http.MethodGet,
			"http://"+r.Addresses().Pickers[0].Metrics+"/debug/decisions?request="+a.head.Get("x-request-id"), "").body
		compact := strings.ReplaceAll(string(one), " ", "")
		if !strings.Contains(compact, want) || !strings.Contains(compact, `"weight":2`) {
			t.Errorf("x-priority %s: %s with the doubled weight is not in %.900s", asked, want, compact)
		}
	}
	if a := r.post(at, asksOther); a.status != http.StatusNotFound {
		t.Errorf("without the override: %d", a.status)
	}
}

// Where a policy asks for API keys, requests without one are a 401, and keys are
// written nowhere.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	const policy = `
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: SecurityPolicy
metadata: {name: keys}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r-v1}]
  apiKeyAuth:
    credentialRefs: [{group: "", kind: Secret, name: keys}]
    extractFrom: [{headers: [Authorization, x-api-key]}]
    forwardClientIDHeader: x-client
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {alice: sk-very-secret-1, bob: sk-very-secret-2}
`
	for name, more := range map[string]string{"plain": "",
		"behind a body-based router": router("default", "- a") + leadByBase("one")} {
		r := bring(t, objectsOf(t, oneGateway()+echoes("one", 1)+leadTo("/v1", pool("one"))+policy+more))
		at := r.url(80) + "/v1/chat/completions"
		ask := strings.Replace(chat, `"m"`, `"a"`, 1)
		for _, c := range []struct {
			header, key string
			status      int
		}{{"Authorization", "Bearer sk-very-secret-1", 200}, {"x-api-key", "sk-very-secret-2", 200},
			{"x-api-key", "sk-very", 401}, {"x-other", "", 401}} {
			a := r.post(at, ask, c.header, c.key)
			if a.status != c.status {
				t.Errorf("%s: %s: %s: %d, expected %d: %s", name, c.header, c.key, a.status, c.status, a.body)
			}
			if a.status == 200 && !bytes.Contains(a.body, []byte(`"X-Client":[`)) {
				t.Errorf("%s: the client's name does not go on: %s", name, a.body)
			}
		}
		dump := r.do(http.MethodGet, "http://"+r.Envoy.AdminAddr+"/config_dump", "").body
		if !bytes.Contains(dump, []byte("api_key_auth")) || bytes.Contains(dump, []byte("sk-very-secret")) {
			t.Errorf("%s: Envoy's pages tell keys, or nothing of them", name)
		}
		if text := strings.Join(r.notes, "\n"); strings.Contains(text, "sk-very") {
			t.Errorf("a note tells a key: %s", text)
		}
	}
}

// Document 003's EnvoyFilter, as it stands in its file, changes the requests to pods and the responses to clients: it
// sets Envoy's variables, adds headers only if they are absent, and removes internal ones.
func TestHeaderFilter(t *testing.T) {
	t.Parallel()
	filter, err := os.ReadFile("../../examples/manifests/document-003/headers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := bring(t, objectsOf(t,
		oneGateway()+echoes("one", 1)+
			object("HTTPRoute", "llm-inference-route", dict{"parentRefs": []dict{{"name": "g"}}, "rules": []dict{{
				"filters": []dict{{"type": "URLRewrite",
					"urlRewrite": dict{"path": dict{"type": "ReplacePrefixMatch", "replacePrefixMatch": "/there"}}}},
				"backendRefs": []dict{{"name": "one", "port": 8080}}}}})+"\n---\n"+string(filter)))
	ask := func(headers ...string) (echoed, http.Header) {
		a := r.do(http.MethodGet, r.url(80)+"/asked", "", headers...)
		var e echoed
		if err := json.Unmarshal(a.body, &e); err != nil || a.status != http.StatusOK {
			t.Fatalf("%d: %s", a.status, a.body)
		}
		return e, a.head
	}
	e, head := ask("X-Internal-Header", "secret", "X-Echo-Set-Header", "X-Cache-Hit:true,X-Internal-Debug:secret")
	for name, form := range map[string]string{"X-Request-Id": `^[-0-9a-f]{36}$`, "X-Forwarded-Proto": `^http$`,
		"X-Envoy-Original-Path": `^/asked$`, "X-Request-Start-Time": `^\d{4}-\d\d-\d\dT.*Z$`} {
		if got := strings.Join(e.Headers[name], ","); !regexp.MustCompile(form).MatchString(got) {
			t.Errorf("the pod saw %s: %q; expected %s", name, got, form)
		}
	}
	if got := e.Headers["X-Internal-Header"]; got != nil {
		t.Errorf("the pod saw X-Internal-Header: %q", got)
	}
	for name, form := range map[string]string{"X-Cache-Hit": `^true$`, "X-Selected-Pod": `^127\..*:\d+$`,
		"X-Response-Time-Ms": `^\d+$`, "X-Internal-Debug": `^$`} {
		if got := strings.Join(head.Values(name), ","); !regexp.MustCompile(form).MatchString(got) {
			t.Errorf("the client saw %s: %q; expected %s", name, got, form)
		}
	}
	if e, _ = ask("X-Request-Start-Time", "never"); strings.Join(e.Headers["X-Request-Start-Time"], "") == "never" {
		t.Error("what is to be set was left as the client sent it")
	}
}
