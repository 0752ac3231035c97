package up

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// echoes are pods that answer with what they were asked, behind a Service and in a
// pool of the same name.
func echoes(name string, replicas int) string {
	return strings.Replace(backends(name), "spec:\n  selector", fmt.Sprintf("spec:\n  replicas: %d\n  selector", replicas), 1) + fmt.Sprintf(`
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: %[1]s}
spec: {selector: {matchLabels: {app: %[1]s}}, targetPorts: [{number: 3000}], endpointPickerRef: {name: epp-%[1]s, port: {number: 9002}}}
`, name)
}

func policy(kind, name string, spec dict) string {
	spec["targetRefs"] = []dict{{"group": "g", "kind": kind, "name": name}}
	text, err := json.Marshal(dict{"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "BackendTrafficPolicy", "metadata": dict{"name": strings.ToLower(kind) + "-" + name}, "spec": spec})
	if err != nil {
		panic(err)
	}
	return "\n---\n" + string(text) + "\n"
}

// pod is which one answered, and at which attempt.
func (a *answer) pod() (name, attempt string) {
	var e echoed
	_ = json.Unmarshal(a.body, &e)
	return e.Pod, strings.Join(e.Headers["X-Envoy-Attempt-Count"], ",")
}

const chat = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

// A request that fails at one pod is tried again at another, of a Service and of a
// pool alike, also when its body is long.
func TestRetriesGoToAnotherPod(t *testing.T) {
	t.Parallel()
	retry := dict{"retry": dict{"numRetries": 3, "retryOn": []string{"5xx", "reset", "connect-failure", "refused-stream", "retriable-status-codes"}, "retriableStatusCodes": []int{429, 503}, "backoff": dict{"baseInterval": "1ms", "maxInterval": "10ms", "multiplier": 2}}}
	r := bring(t, objectsOf(t, oneGateway()+echoes("one", 2)+leadTo("/svc", dict{"name": "one", "port": 8080})+leadTo("/v1", pool("one"))+policy("HTTPRoute", "r-svc", retry)+policy("HTTPRoute", "r-v1", retry)))
	long := strings.Replace(chat, "hi", strings.Repeat("long ", 60_000), 1)
	for _, path := range []string{"/svc", "/v1/chat/completions"} {
		for _, status := range []string{"503", "429"} {
			again := 0
			for i := range 12 {
				a := r.post(r.url(80)+path, strings.Replace(long, "long", fmt.Sprint(status, path, i), 1), "Content-Type", "application/json", "X-Echo-Status", status+"@one-0")
				name, attempt := a.pod()
				if a.status != http.StatusOK || name != "one-1" {
					t.Fatalf("%s: status %d from %s at attempt %s: %.200s", path, a.status, name, attempt, a.body)
				}
				if attempt == "2" {
					again++
				}
			}
			if again == 0 {
				t.Errorf("%s: of 12 requests none came to the pod that answers %s first", path, status)
			}
		}
	}
	if a := r.post(r.url(80)+"/svc", chat, "X-Echo-Status", "404"); a.status != http.StatusNotFound {
		t.Errorf("what is not to be tried again: %d", a.status)
	}
}

// Times cut where they should: the whole exchange, and each attempt.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, oneGateway()+echoes("one", 2)+leadTo("/whole", dict{"name": "one", "port": 8080})+leadTo("/each", dict{"name": "one", "port": 8080})+leadTo("/free", dict{"name": "one", "port": 8080})+
		policy("HTTPRoute", "r-whole", dict{"timeout": dict{"request": "100ms", "backend": "55s"}})+
		policy("HTTPRoute", "r-each", dict{"retry": dict{"numRetries": 2, "perTryTimeout": "200ms", "retryOn": []string{"5xx"}, "backoff": dict{"baseInterval": "1ms"}}})))
	at := r.url(80)
	if a := r.do(http.MethodGet, at+"/whole", "", "X-Echo-Delay", "30s"); a.status != http.StatusGatewayTimeout {
		t.Errorf("the whole exchange: %d", a.status)
	}
	again := 0
	for range 6 {
		a := r.do(http.MethodGet, at+"/each", "", "X-Echo-Delay", "30s@one-0")
		name, attempt := a.pod()
		if a.status != http.StatusOK || name != "one-1" {
			t.Fatalf("each attempt: %d from %s", a.status, name)
		}
		if attempt == "2" {
			again++
		}
	}
	if again == 0 {
		t.Error("no attempt was cut")
	}
	if a := r.do(http.MethodGet, at+"/free", "", "X-Echo-Delay", "300ms"); a.status != http.StatusOK {
		t.Errorf("without a policy: %d", a.status)
	}
}

// An open breaker answers 503 at once, and closes again.
func TestBreaker(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, oneGateway()+echoes("one", 1)+leadTo("/v1", pool("one"))+policy("InferencePool", "one", dict{"circuitBreaker": dict{"maxRequests": 1, "maxConnections": 1024, "maxPendingRequests": 1024, "maxRetries": 3}})))
	at := r.url(80) + "/v1/chat/completions"
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var held sync.WaitGroup
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(chat))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Echo-Delay", "50s")
	held.Go(func() {
		if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	})
	eventually.Is(t, "the first request to be at the server", func() bool {
		a, err := r.Envoy.Active(t.Context())
		return err == nil && a.Upstream == 1
	})
	for range 3 {
		if a := r.post(at, chat); a.status != http.StatusServiceUnavailable {
			t.Errorf("with the breaker open: %d", a.status)
		}
	}
	leave()
	held.Wait()
	eventually.Is(t, "the breaker to close", func() bool { return r.post(at, chat).status == http.StatusOK })
}

// An endpoint that fails is ejected, and no picker's candidate then; after its time
// it is back.
func TestEjectedEndpointsReturn(t *testing.T) {
	t.Parallel()
	outlier := dict{"consecutive5xxErrors": 2, "interval": "100ms", "baseEjectionTime": "1s", "maxEjectionPercent": 50}
	r := bring(t, objectsOf(t, oneGateway()+echoes("one", 2)+leadTo("/v1", pool("one"))+policy("InferencePool", "one", dict{"circuitBreaker": dict{"outlierDetection": outlier}})))
	at := r.url(80) + "/v1/chat/completions"
	n := 0
	ask := func(status string) string {
		n++ // another prompt each time: what a pod has seen draws the same there again
		a := r.post(at, strings.Replace(chat, "hi", fmt.Sprint(n, " and more"), 1), "X-Echo-Status", status)
		name, _ := a.pod()
		return name
	}
	ejected := func() bool {
		r.applying.Lock()
		defer r.applying.Unlock()
		return len(r.ejected["pool/default/one"]) > 0
	}
	eventually.Is(t, "the failing endpoint to be ejected", func() bool { ask("500@one-0"); return ejected() })
	for range 10 {
		if name := ask(""); name == "one-0" && ejected() {
			t.Error("an ejected endpoint was chosen")
		}
	}
	eventually.Is(t, "it to return", func() bool { return ask("") == "one-0" && !ejected() })
}
