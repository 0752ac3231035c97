package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// echoes are pods that answer with what they were asked, behind a Service and in a
// pool of the same name.
func echoes(name string, replicas int) string {
	return strings.Replace(backends(name), "spec:\n  selector",
		fmt.Sprintf("spec:\n  replicas: %d\n  selector", replicas), 1) + fmt.Sprintf(`
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: %[1]s}
spec: {selector: {matchLabels: {app: %[1]s}}, targetPorts: [{number: 3000}], endpointPickerRef: {name: epp-%[1]s, port: {number: 9002}}}
`, name)
}

func policy(kind, name string, spec dict) string {
	spec["targetRefs"] = []dict{{"group": "g", "kind": kind, "name": name}}
	text, err := json.Marshal(
		dict{"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "BackendTrafficPolicy",
			"metadata": dict{"name": strings.ToLower(kind) + "-" + name}, "spec": spec})
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
	retry := dict{"retry": dict{"numRetries": 3,
		"retryOn":              []string{"5xx", "reset", "connect-failure", "refused-stream", "retriable-status-codes"},
		"retriableStatusCodes": []int{429, 503},
		"backoff":              dict{"baseInterval": "1ms", "maxInterval": "10ms", "multiplier": 2}}}
	r := bring(t, objectsOf(t,
		oneGateway()+echoes("one", 2)+leadTo("/svc", dict{"name": "one", "port": 8080})+leadTo("/v1", pool("one"))+
			policy("HTTPRoute", "r-svc", retry)+policy("HTTPRoute", "r-v1", retry)+
			object("HTTPRoute", "own",
				dict{"parentRefs": []dict{{"name": "g"}},
					"rules": []dict{{"matches": []dict{{"path": dict{"value": "/own"}}},
						"retry":       dict{"codes": []int{502}, "attempts": 1, "backoff": "1ms"},
						"backendRefs": []dict{{"name": "one", "port": 8080}}}}})))
	long := strings.Replace(chat, "hi", strings.Repeat("long ", 60_000), 1)
	for _, path := range []string{"/svc", "/v1/chat/completions"} {
		for _, status := range []string{"503", "429"} {
			again := 0
			for i := range 12 {
				a := r.post(r.url(80)+path, strings.Replace(long, "long", fmt.Sprint(status, path, i), 1),
					"Content-Type", "application/json", "X-Echo-Status", status+"@one-0")
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
	// what the route's own retry names, and what it does not
	for _, c := range []struct{ status, attempts string }{{"502@one-0", "2"}, {"503@one-0", ""}} {
		seen := ""
		for i := range 12 {
			a := r.post(r.url(80)+"/own", fmt.Sprint(c, i), "X-Echo-Status", c.status)
			name, attempt := a.pod()
			if again := attempt == "2"; name == "one-0" && a.status == http.StatusOK || again && name != "one-1" {
				t.Errorf("%s: status %d from %s at attempt %s", c.status, a.status, name, attempt)
			} else if again {
				seen = attempt
			}
		}
		if seen != c.attempts {
			t.Errorf("%s: attempt %q, expected %q", c.status, seen, c.attempts)
		}
	}
	if a := r.post(r.url(80)+"/svc", chat, "X-Echo-Status", "404"); a.status != http.StatusNotFound {
		t.Errorf("what is not to be tried again: %d", a.status)
	}
}

// Times cut where they should: the whole exchange, and each attempt.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t,
		oneGateway()+echoes("one", 2)+leadTo("/whole", dict{"name": "one", "port": 8080})+
			leadTo("/each", dict{"name": "one", "port": 8080})+leadTo("/free", dict{"name": "one", "port": 8080})+
			policy("HTTPRoute", "r-whole", dict{"timeout": dict{"request": "100ms", "backend": "55s"}})+
			policy("HTTPRoute", "r-each",
				dict{"retry": dict{"numRetries": 2, "perTryTimeout": "2s", "retryOn": []string{"5xx"},
					"backoff": dict{"baseInterval": "1ms"}}})))
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

// full is a port of loopback where no connection is made any more: its queue is full.
func full(t *testing.T) int {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) }) // nobody waits for it
	if err := errors.Join(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		syscall.Listen(socket, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	port := at.(*syscall.SockaddrInet4).Port
	for range 10 {
		c, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port), 200*time.Millisecond)
		if err != nil {
			return port
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("a port whose queue is full takes connections")
	return 0
}

// A connection that cannot be made is given up after connectTimeout, as Envoy Gateway and
// as document 003 write it, and counts as one that failed.
func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	port, text := full(t), oneGateway()
	for name, timeout := range map[string]dict{"short": {"request": "20s", "backend": "100ms"},
		"tcp":  {"http": dict{"requestTimeout": "20s"}, "tcp": dict{"connectTimeout": "100ms"}},
		"long": {"request": "300ms", "backend": "55s"}} {
		text += fmt.Sprintf("\n---\napiVersion: v1\nkind: Service\nmetadata: {name: %[1]s}\nspec: {ports: [{name: "+
			"http, port: 80}]}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[1]s, "+
			"labels: {kubernetes.io/service-name: %[1]s}}\naddressType: IPv4\nports: [{name: http, port: "+
			"%[2]d}]\nendpoints: [{addresses: [127.0.0.1], conditions: {ready: true}}]\n", name, port) +
			leadTo("/"+name, dict{"name": name, "port": 80}) + policy("HTTPRoute", "r-"+name, dict{"timeout": timeout})
	}
	r := bring(t, objectsOf(t, text))
	for path, want := range map[string]int{"/short": http.StatusServiceUnavailable,
		"/tcp": http.StatusServiceUnavailable, "/long": http.StatusGatewayTimeout} {
		if a := r.do(http.MethodGet, r.url(80)+path, ""); a.status != want {
			t.Errorf("%s: %d %s; expected %d", path, a.status, a.body, want)
		}
	}
}

// An open breaker answers 503 at once, and closes again.
func TestBreaker(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t,
		oneGateway()+echoes("one", 1)+leadTo("/v1", pool("one"))+
			policy("InferencePool", "one",
				dict{"circuitBreaker": dict{"maxRequests": 1, "maxConnections": 1024, "maxPendingRequests": 1024,
					"maxRetries": 3}})))
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
	r := bring(t, objectsOf(t,
		oneGateway()+echoes("one", 2)+leadTo("/v1", pool("one"))+
			policy("InferencePool", "one", dict{"circuitBreaker": dict{"outlierDetection": outlier}})))
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

// A budget stops a storm of retries: of many requests that all fail at once only a
// share is tried again.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	retry := dict{"numRetries": 3, "retryOn": []string{"5xx"},
		"backoff": dict{"baseInterval": "1ms", "maxInterval": "2ms"}}
	r := bring(t, objectsOf(t,
		oneGateway()+backends("free", "bound")+leadTo("/free", dict{"name": "free", "port": 8080})+
			leadTo("/bound", dict{"name": "bound", "port": 8080})+
			policy("HTTPRoute", "r-free", dict{"retry": retry})+
			policy("HTTPRoute", "r-bound",
				dict{"retry": retry, "circuitBreaker": dict{
					"retryBudget": dict{"percent": dict{"numerator": 20}, "minRetryConcurrency": 3}}})))
	const at = 50
	attempts := func(path string) (all int) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range at {
			wg.Go(func() {
				a := r.do(http.MethodGet, r.url(80)+path, "", "X-Echo-Status", "503", "X-Echo-Delay", "2s")
				_, attempt := a.pod()
				n, err := strconv.Atoi(attempt)
				if err != nil || a.status != http.StatusServiceUnavailable {
					t.Errorf("%s: %d: %.200s", path, a.status, a.body)
				}
				mu.Lock()
				defer mu.Unlock()
				all += n
			})
		}
		wg.Wait()
		return all
	}
	if n := attempts("/free"); n != 4*at {
		t.Errorf("without a budget: %d attempts of %d requests, expected %d", n, at, 4*at)
	}
	if n := attempts("/bound"); n <= at || n > 3*at {
		t.Errorf("with a budget of 20 %%: %d attempts of %d requests", n, at)
	}
}

// slowPicker is a pool whose picker waits for a service that does not answer.
func slowPicker(name, service, timeout string) string {
	config := fmt.Sprintf(`{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig",`+
		`"plugins":[{"type":"kv-cache-manager-scorer","parameters":{"endpoint":%q,"timeout":%q}},`+
		`{"type":"max-score-picker"}],"schedulingProfiles":[{"name":"default",`+
		`"plugins":[{"pluginRef":"kv-cache-manager-scorer"},{"pluginRef":"max-score-picker"}]}]}`, service,
		timeout)
	return strings.Replace(pickerOf(name, 1, ""), "--pool-name="+name,
		fmt.Sprintf("--pool-name=%s, --config-text, '%s'", name, config), 1)
}

func extension(name, route string, spec dict) string {
	spec["backendRefs"] = []dict{{"name": "epp-one", "port": 9002}}
	text, err := json.Marshal(
		dict{"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyExtensionPolicy",
			"metadata": dict{"name": name},
			"spec": dict{"targetRefs": []dict{
				{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": route}},
				"extProc": []dict{spec}}})
	if err != nil {
		panic(err)
	}
	return "\n---\n" + string(text) + "\n"
}

// A picker that takes longer than processingTimeout is given up: with failOpen any
// server answers, else nobody does.
func TestProcessingTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer stuck.Close()
	defer close(release)
	mode := dict{"request": dict{"body": "BUFFERED"}, "response": dict{"body": "NONE"}}
	r := bring(t, objectsOf(t,
		oneGateway()+echoes("one", 1)+slowPicker("one", stuck.URL, "60s")+leadTo("/closed", pool("one"))+
			leadTo("/open", pool("one"))+
			extension("closed", "r-closed",
				dict{"processingMode": mode, "processingTimeout": "200ms", "failOpen": false})+
			extension("open", "r-open", dict{"processingMode": mode, "processingTimeout": "200ms", "failOpen": true})))
	if a := r.post(r.url(80)+"/closed/v1/chat/completions", chat); a.status < 500 {
		t.Errorf("failOpen: false: %d: %s", a.status, a.body)
	}
	a := r.post(r.url(80)+"/open/v1/chat/completions", chat)
	if name, _ := a.pod(); a.status != http.StatusOK || name != "one-0" {
		t.Errorf("failOpen: true: %d: %s", a.status, a.body)
	}
}

// An edit that changes a picker's cluster alone, or a pool's, is in force without an edit of its endpoints: failOpen
// turns health checks on and off, and a breaker opens.
func TestEditedClusters(t *testing.T) {
	t.Parallel()
	with := func(open bool, most int) *gateway.Set {
		return objectsOf(t, oneGateway()+echoes("one", 1)+leadTo("/v1", pool("one"))+
			extension("x", "r-v1", dict{"failOpen": open})+
			policy("InferencePool", "one", dict{"circuitBreaker": dict{"maxRequests": most}}))
	}
	r := bring(t, with(false, 10))
	for range 2 {
		for _, to := range []*gateway.Set{with(true, 10), with(true, 0), with(false, 0), with(false, 10)} {
			if err := r.Apply(t.Context(), to); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a := r.post(r.url(80)+"/v1/chat/completions", chat); a.status != http.StatusOK {
		t.Errorf("after the edits: %d: %s", a.status, a.body)
	}
}

// Routes to a pool whose picker holds requests have no limit of one attempt, and
// retries of connections alone; both is said.
func TestHeldPoolsAreNotCut(t *testing.T) {
	t.Parallel()
	s := objectsOf(t, oneGateway()+echoes("one", 1)+pickerOf("one", 1, ", --hold")+leadTo("/v1", pool("one"))+
		policy("HTTPRoute", "r-v1",
			dict{"retry": dict{"numRetries": 3, "perTryTimeout": "20s", "retryOn": []string{"5xx", "connect-failure"},
				"retriableStatusCodes": []int{503}}}))
	p, err := Dry(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range p.Program.Gateways[0].Tables() {
		for _, route := range table.Hosts[0].Routes {
			if x := route.Retrying; x.Try != 0 || fmt.Sprint(x.On, x.Codes) != "[connect-failure] []" {
				t.Errorf("%s: retries %+v", route, x)
			}
		}
	}
	if text := strings.Join(p.Program.Notes, "\n"); !strings.Contains(text, "holds requests open") {
		t.Errorf("nothing is said of it:\n%s", text)
	}
}

// Endpoints change under load, and no request is lost. WINDTUNNEL_CHANGES says how
// often (make test-changes: 10,000 times).
func TestManyEndpointChanges(t *testing.T) {
	t.Parallel()
	changes := 60
	if text := os.Getenv("WINDTUNNEL_CHANGES"); text != "" {
		var err error
		if changes, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	var ports []string
	var served [3]atomic.Int64
	for i := range 3 {
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served[i].Add(1) }))
		defer server.Close()
		_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
		ports = append(ports, port)
	}
	state := func(which ...int) *gateway.Set {
		text := oneGateway() + leadTo("/", dict{"name": "s", "port": 80}) +
			"\n---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{name: http, port: 80}]}\n"
		for _, i := range which {
			text += fmt.Sprintf("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s-%d, "+
				"labels: {kubernetes.io/service-name: s}}\naddressType: IPv4\nports: [{name: http, port: "+
				"%s}]\nendpoints: [{addresses: [127.0.0.1], conditions: {ready: true}}]\n", i, ports[i])
		}
		return objectsOf(t, text)
	}
	sets := []*gateway.Set{state(0), state(0, 1), state(1), state(1, 2), state(2), state(0, 1, 2)}
	r := bring(t, sets[0])
	var done atomic.Bool
	var asked atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			client := http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for !done.Load() {
				resp, err := client.Post(r.url(80)+"/x", "text/plain", strings.NewReader("x"))
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("status %d", resp.StatusCode)
					return
				}
				asked.Add(1)
			}
		})
	}
	for i := range changes {
		if err := r.Apply(t.Context(), sets[(i+1)%len(sets)]); err != nil || t.Failed() {
			t.Error(err)
			break
		}
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d changes, %d requests", changes, asked.Load())
	for i := range served {
		if served[i].Load() == 0 {
			t.Errorf("server %d was never asked", i)
		}
	}
}

// A rate limit answers 429 beyond it, for each route by itself, before and behind a body-based router;
// Envoy takes each way of load balancing.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	limit := func(n int, balancer string) dict {
		return dict{"loadBalancer": dict{"type": balancer}, "rateLimit": dict{"type": "Local",
			"local": dict{"rules": []dict{{"limit": dict{"requests": n, "unit": "Hour"}}}}}}
	}
	r := bring(t, objectsOf(t, oneGateway()+echoes("one", 2)+backends("two")+leadTo("/v1", pool("one"))+
		leadTo("/two", dict{"name": "two", "port": 8080})+leadTo("/free", dict{"name": "two", "port": 8080})+
		policy("HTTPRoute", "r-v1", limit(2, "Random"))+policy("HTTPRoute", "r-two", limit(1, "LeastRequest"))))
	for path, want := range map[string]string{"/v1/chat/completions": "200 200 429 429", "/two": "200 429 429 429",
		"/free": "200 200 200 200"} {
		var got []string
		for range 4 {
			a := r.post(r.url(80)+path, chat)
			got = append(got, strconv.Itoa(a.status))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, expected %s", path, got, want)
		}
	}
}
