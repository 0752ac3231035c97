package up

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/tlsfiles"
)

func oneGateway(listeners ...dict) string {
	if listeners == nil {
		listeners = []dict{{"name": "http", "port": 80, "protocol": "HTTP"}}
	}
	return object("Gateway", "g", dict{"gatewayClassName": "any", "listeners": listeners})
}

func leadTo(path string, refs ...dict) string {
	return object("HTTPRoute", "r"+strings.TrimRight(strings.ReplaceAll(path, "/", "-"), "-"),
		dict{"parentRefs": []dict{{"name": "g"}},
			"rules": []dict{{"matches": []dict{{"path": dict{"value": path}}}, "backendRefs": refs}}})
}

// servers are model servers of a pool, by its name.
func servers(pool string, replicas int, more string) string {
	return fmt.Sprintf(`
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {pool: %[1]s}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: epp-%[1]s, port: {number: 9002}%[3]s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {pool: %[1]s}}
  template:
    metadata: {labels: {pool: %[1]s}}
    spec: {containers: [{name: vllm, image: ghcr.io/llm-d/llm-d-inference-sim, args: ["--model", "%[1]s"], ports: [{containerPort: 8000}]}]}
`, pool, replicas, more)
}

func pool(name string) dict {
	return dict{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": name}
}

const ask = `{"model":"%s","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`

// Pods come and go, weights and routes change, and no request under way fails.
func TestNoRequestIsLostWhileManifestsChange(t *testing.T) {
	t.Parallel()
	state := func(a, b, weight int) *gateway.Set {
		return objectsOf(t, oneGateway()+servers("a", a, "")+servers("b", b, "")+
			leadTo("/v1", dict{"name": "a", "kind": "InferencePool", "group": "inference.networking.k8s.io",
				"weight": weight},
				dict{"name": "b", "kind": "InferencePool", "group": "inference.networking.k8s.io",
					"weight": 10 - weight}))
	}
	r := bring(t, state(2, 2, 5))
	at := r.url(80) + "/v1/chat/completions"
	var done atomic.Bool
	var asked atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			client := http.Client{}
			defer client.CloseIdleConnections()
			for !done.Load() {
				resp, err := client.Post(at, "application/json", strings.NewReader(fmt.Sprintf(ask, "a")))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if model404 := strings.Contains(string(body), "does not exist"); err != nil ||
					resp.StatusCode != http.StatusOK && !model404 {
					t.Errorf("status %d: %s (%v)", resp.StatusCode, body, err)
					return
				}
				asked.Add(1)
			}
		})
	}
	for i := range 12 {
		before := asked.Load()
		if err := r.Apply(t.Context(), state(1+i%3, 3-i%3, i%10)); err != nil {
			t.Error(err)
			break
		}
		eventually.Is(t, "more requests", func() bool { return asked.Load() > before+20 || t.Failed() })
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d requests", asked.Load())
}

// write replaces a file as editors do.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+"~", []byte(text), 0o600), os.Rename(path+"~", path)); err != nil {
		t.Fatal(err)
	}
}

// open opens manifests, and reads them.
func open(t *testing.T, paths ...string) (*Manifests, *gateway.Set) {
	t.Helper()
	m, err := Open(paths, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	s, err := m.Load()
	if err != nil {
		t.Fatal(err)
	}
	return m, s
}

// follow follows edits until stop, and returns the result of the last one.
func (r *rig) follow(m *Manifests) (last func() string, stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var mu sync.Mutex
	var refusal string
	var following sync.WaitGroup
	following.Go(func() {
		r.Follow(ctx, m, func(_ string, err error) {
			mu.Lock()
			defer mu.Unlock()
			refusal = fmt.Sprint(err)
		})
	})
	stop = func() { cancel(); following.Wait() }
	r.t.Cleanup(stop)
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return refusal
	}, stop
}

func (r *rig) status(path string) int { return r.do(http.MethodGet, r.url(80)+path, "").status }

// An edit comes into force, even one made while everything starts. A wrong edit is reported, and the last good state
// stays.
func TestEditedFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "all.yaml")
	state := func(path string) string {
		return oneGateway() + backends("one") + leadTo(path, dict{"name": "one", "port": 8080})
	}
	write(t, file, state("/a"))
	m, s := open(t, filepath.Dir(file))
	r := bring(t, s)
	if got := r.status("/a"); got != http.StatusOK {
		t.Fatalf("/a: %d", got)
	}
	write(t, file, state("/meanwhile"))
	refusal, _ := r.follow(m)
	eventually.Is(t, "what was edited during the start", func() bool { return r.status("/meanwhile") == http.StatusOK })
	write(t, file, state("/b"))
	eventually.Is(t, "the new route",
		func() bool { return r.status("/b") == http.StatusOK && r.status("/meanwhile") == http.StatusNotFound })
	write(t, file, state("c"))
	eventually.Is(t, "the mistake to be told",
		func() bool { return strings.Contains(refusal(), "expected a path that begins with /") })
	if got := r.status("/b"); got != http.StatusOK {
		t.Errorf("after a mistake /b: %d", got)
	}
}

// Edits of several files are in force in their order, however long one takes: the newest is last.
func TestEditsInOrder(t *testing.T) {
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "a.yaml"), filepath.Join(t.TempDir(), "b.yaml")
	ref := dict{"name": "one", "port": 8080}
	edit := func(n int) {
		write(t, first, oneGateway()+backends("one")+leadTo(fmt.Sprint("/a", n), ref))
		write(t, second, leadTo(fmt.Sprint("/b", n), ref))
	}
	edit(0)
	m, s := open(t, first, second)
	r := bring(t, s)
	r.follow(m)
	for n := range 3 {
		r.applying.Lock() // the first edit waits here
		write(t, second, leadTo("/early", ref))
		eventually.Is(t, "the edit to be noticed", func() bool { return len(m.changed) == 0 && !m.waits() })
		edit(n + 1)
		r.applying.Unlock()
		a, b := fmt.Sprint("/a", n+1), fmt.Sprint("/b", n+1)
		eventually.Is(t, "the newest edits", func() bool {
			return r.status(a) == http.StatusOK && r.status(b) == http.StatusOK &&
				r.status("/early") == http.StatusNotFound
		})
	}
}

// waits says whether an edit waits to be taken over.
func (m *Manifests) waits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.edited) > 0
}

// freeze has Envoy do nothing until the test ends or it is thawed.
func (r *rig) freeze() (thaw func()) {
	r.t.Helper()
	pid := r.Envoy.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		r.t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it may have ended
	r.t.Cleanup(thaw)
	return thaw
}

// An edit that Envoy does not take is in force nowhere, and is when it comes again.
func TestEditThatEnvoyDoesNotTake(t *testing.T) {
	t.Parallel()
	ref := dict{"name": "one", "port": 8080}
	r := bring(t, objectsOf(t, oneGateway()+backends("one")+leadTo("/a", ref)))
	next := objectsOf(t, oneGateway()+backends("one", "two")+leadTo("/b", ref))
	ctx, cancel := context.WithCancel(t.Context())
	thaw := r.freeze()
	failed := make(chan error, 1)
	go func() { failed <- r.Apply(ctx, next) }()
	eventually.Is(t, "the edit to begin", func() bool { return len(r.services.Load().pods) == 2 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	thaw()
	eventually.Is(t, "the last good state",
		func() bool { return r.status("/b") == http.StatusNotFound && r.status("/a") == http.StatusOK })
	if err := r.Apply(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if a, b := r.status("/a"), r.status("/b"); a != http.StatusNotFound || b != http.StatusOK {
		t.Errorf("after the same edit again /a: %d, /b: %d", a, b)
	}
}

// What is undone after Envoy had it is gone everywhere: from Envoy, from pickers, from the files of
// sidecars; and what was started for it has ended.
func TestUndone(t *testing.T) {
	t.Parallel()
	state := func(replicas int, path string) *gateway.Set {
		return objectsOf(t, oneGateway()+servers("a", replicas, "")+leadTo(path, pool("a")))
	}
	r := bring(t, state(1, "/v1"))
	r.applying.Lock()
	defer r.applying.Unlock()
	s := state(2, "/v2")
	endpoints := func() (out []string) {
		r.pickers["pool/default/a/0"].server.Picking().With(func(m *core.Machine, _ machine.Time) {
			view := m.Picker().Pool().View()
			for i := range view.States {
				out = append(out, view.States[i].HostPort())
			}
		})
		return out
	}
	file := func() string {
		text, err := os.ReadFile(r.endpointsFile(poolName{namespace: "default"}))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	pickers, files := fmt.Sprint(endpoints()), file()
	to := plan.Compile(s, plan.Options{Options: gateway.Options{Supply: true}, OwnAddresses: r.Up.addresses.Own()})
	c := r.newChange(to)
	c.wide = true
	if err := errors.Join(c.read(), c.start(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := r.Envoy.Set(t.Context(), c.configuration(c.both())); err != nil {
		t.Fatal(err)
	}
	c.applyToPickers()
	if fmt.Sprint(endpoints()) == pickers || file() == files {
		t.Fatal("the change is not in force")
	}
	if err := c.undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := fmt.Sprint(endpoints()); now != pickers {
		t.Errorf("the picker has %s, expected %s", now, pickers)
	}
	if now := file(); now != files {
		t.Errorf("sidecars' file: %s, expected %s", now, files)
	}
	at := "http://" + r.listen["default/g/80"]
	for path, want := range map[string]int{"/v1": http.StatusOK, "/v2": http.StatusNotFound} {
		if a := r.post(at+path+"/chat/completions", fmt.Sprintf(ask, "a"), "Content-Type",
			"application/json"); a.status != want {
			t.Errorf("%s: %d, expected %d: %s", path, a.status, want, a.body)
		}
	}
	r.draining.Wait()
	for _, at := range c.started.pods[0].At {
		if conn, err := net.Dial("tcp", at); err == nil {
			conn.Close()
			t.Errorf("%s still listens", at)
		}
	}
}

// Everything ends at once while an edit waits for an Envoy that does not answer.
func TestStopDuringEdit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "all.yaml")
	ref := dict{"name": "one", "port": 8080}
	write(t, file, oneGateway()+backends("one")+leadTo("/a", ref))
	m, s := open(t, file)
	r := &rig{t: t}
	var err error
	if r.Up, err = Start(t.Context(), Options{Objects: s, Dir: t.TempDir(), OwnAddresses: true}); err != nil {
		t.Fatal(err)
	}
	refusal, stop := r.follow(m)
	r.freeze()
	write(t, file, oneGateway()+backends("one", "two")+leadTo("/b", ref))
	eventually.Is(t, "the edit to begin", func() bool { return len(r.services.Load().pods) == 2 })
	stop()
	if err := r.Stop(context.Background()); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("the end of an Envoy that does not answer: %v", err)
	}
	if text := refusal(); text != "" { // it was not Envoy's time that was over
		t.Errorf("told %s", text)
	}
}

// A configuration that Envoy refuses is reported, and everything stays as it was.
func TestRefusedByEnvoy(t *testing.T) {
	t.Parallel()
	ref := dict{"name": "one", "port": 8080}
	r := bring(t, objectsOf(t, oneGateway()+backends("one")+leadTo("/a", ref)))
	at := r.url(80)
	// Go's RE2 accepts the expression; Envoy's limit on a program's size does not.
	bad := object("HTTPRoute", "bad",
		dict{"parentRefs": []dict{{"name": "g"}},
			"rules": []dict{{"matches": []dict{
				{"path": dict{"type": "RegularExpression", "value": "/" + strings.Repeat("(a{1,999}b{1,999})", 40)}}},
				"backendRefs": []dict{ref}}}})
	err := r.Apply(t.Context(), objectsOf(t, oneGateway()+backends("one", "two")+leadTo("/b", ref)+bad))
	if err == nil || !strings.Contains(err.Error(), "Envoy refused default/g/80") {
		t.Fatalf("%v", err)
	}
	if a := r.do(http.MethodGet, at+"/a", ""); a.status != http.StatusOK {
		t.Errorf("/a after a refusal: %d", a.status)
	}
	if err := r.Apply(t.Context(), objectsOf(t, oneGateway()+backends("one")+leadTo("/b", ref))); err != nil {
		t.Fatal(err)
	}
	if a := r.do(http.MethodGet, at+"/b", ""); a.status != http.StatusOK {
		t.Errorf("/b afterwards: %d", a.status)
	}
}

// HTTPS listeners serve a Secret's certificate by the name that is asked for, and
// one made for the occasion where there is no Secret.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	cert, key, err := tlsfiles.SelfSignedPEM([]string{"a.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := json.Marshal(
		dict{"apiVersion": "v1", "kind": "Secret", "metadata": dict{"name": "cert"},
			"stringData": dict{"tls.crt": string(cert), "tls.key": string(key)}})
	if err != nil {
		t.Fatal(err)
	}
	ref := dict{"name": "one", "port": 8080}
	listener := func(name, host, secret string) dict {
		return dict{"name": name, "port": 443, "protocol": "HTTPS", "hostname": host,
			"tls": dict{"certificateRefs": []dict{{"name": secret}}}}
	}
	r := bring(t, objectsOf(t,
		oneGateway(listener("a", "a.example.com", "cert"), listener("b", "*.b.example.com", "missing"))+backends("one")+
			leadTo("/", ref)+"\n---\n"+string(secret)))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	get := func(name string, config *tls.Config) (int, error) {
		config.ServerName = name
		client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true,
			ForceAttemptHTTP2: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url(443)+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = name
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
	if status, err := get("a.example.com", &tls.Config{RootCAs: roots}); err != nil || status != http.StatusOK {
		t.Errorf("with the Secret's certificate: %d %v", status, err)
	}
	if status, err := get("x.b.example.com", &tls.Config{InsecureSkipVerify: true}); err != nil ||
		status != http.StatusOK {
		t.Errorf("with a certificate of its own: %d %v", status, err)
	}
	if _, err := get("x.b.example.com", &tls.Config{RootCAs: roots}); err == nil {
		t.Error("the other listener's certificate is not the Secret's, and was taken for it")
	}
	if status, err := get("c.example.com", &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Errorf("a name of no listener: %d", status)
	}
	if !strings.Contains(strings.Join(r.notes, "\n"), "self-signed") {
		t.Error("nothing says that a certificate was made")
	}
}

// A pool whose picker fails closed answers 503 without it, one that fails open is
// served by any of its pods.
func TestPickerGone(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t,
		oneGateway()+servers("closed", 1, "")+servers("open", 2, ", failureMode: FailOpen")+
			leadTo("/closed", pool("closed"))+leadTo("/open", pool("open"))))
	at := r.url(80)
	status := func(name string) int {
		return r.post(at+"/"+name+"/v1/chat/completions", fmt.Sprintf(ask, name), "Content-Type",
			"application/json").status
	}
	for _, name := range []string{"closed", "open"} {
		// The pool's own path is part of the request to the server, so only the gateway's status shows the difference.
		if got := status(name); got == http.StatusServiceUnavailable {
			t.Errorf("%s with its picker: %d", name, got)
		}
	}
	for _, x := range r.pickers {
		x.server.Kill()
	}
	eventually.Is(t, "the open pool to be served",
		func() bool { return status("open") != http.StatusServiceUnavailable })
	if got := status("closed"); got != http.StatusServiceUnavailable {
		t.Errorf("closed without its picker: %d", got)
	}
}

// Each pool's requests are for its own picker, in the shares that the rule says,
// and the pod that a picker chose is the one that answers.
func TestWeightedPools(t *testing.T) {
	t.Parallel()
	a, b := pool("a"), pool("b")
	a["weight"], b["weight"] = 3, 1
	r := bring(t, objectsOf(t, oneGateway()+servers("a", 2, "")+servers("b", 2, "")+leadTo("/v1", a, b)))
	at := r.url(80) + "/v1/chat/completions"
	got := map[string]int{}
	for range 200 {
		x := r.post(at, fmt.Sprintf(ask, "a"), "Content-Type", "application/json")
		var e struct{ Model string }
		_ = json.Unmarshal(x.body, &e) // b does not serve the model
		got[fmt.Sprint(x.status, " ", e.Model)]++
	}
	if n := got["200 a"]; n < 120 || n > 178 || n+got["404 "] != 200 {
		t.Errorf("%v; expected about 150 of 200 at pool a, the others at b, which does not have the model", got)
	}
}
