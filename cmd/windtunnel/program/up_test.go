package program

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// up prints its addresses for programs, applies an edited file, reports a mistake, and ends cleanly.
func TestUp(t *testing.T) {
	t.Parallel()
	port := fmt.Sprint(freeport.Row(t, 1))
	file := filepath.Join(t.TempDir(), "all.yaml")
	manifests := func(path string) []byte {
		return fmt.Appendf(nil, `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec: {gatewayClassName: any, listeners: [{name: a, port: %s, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec: {parentRefs: [{name: g}], rules: [{matches: [{path: {value: %s}}], filters: [{type: RequestRedirect, requestRedirect: {hostname: there.example.com}}]}]}
`, port, path)
	}
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(file, manifests(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("/a")
	u := bringUp(t, "-f", file)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	status := func(path string) int {
		resp, err := client.Get(u.at.Listeners[0].URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if !strings.HasSuffix(u.at.Listeners[0].URL, ":"+port) || status("/a") != http.StatusFound {
		t.Errorf("%+v: /a: %d", u.at, status("/a"))
	}
	write("/b")
	u.await("the edited file", func() bool { return status("/b") == http.StatusFound })
	write("b")
	u.await("the mistake", func() bool { return strings.Contains(u.notes.String(), "what was in force stays") })
	if got := status("/b"); got != http.StatusFound {
		t.Errorf("after the mistake: %d", got)
	}
	u.end()
}

// running is windtunnel up under test.
type running struct {
	t          *testing.T
	out, notes *locked
	code       chan int
	stop       func()
	at         struct {
		Listeners []struct {
			Port int
			URL  string
		}
		Pods []struct{ Sidecar string }
	}
}

func bringUp(t *testing.T, args ...string) *running {
	t.Helper()
	return bringUpFrom(t, nil, args...)
}

// bringUpFrom is bringUp with a standard input.
func bringUpFrom(t *testing.T, input io.Reader, args ...string) *running {
	t.Helper()
	u := &running{t: t, out: &locked{}, notes: &locked{}, code: make(chan int, 1)}
	o := console.New()
	o.Stdin, o.Stdout, o.Stderr, o.Terminal, o.Columns = input, u.out, u.notes, false, 0
	ctx, stop := context.WithCancel(context.Background())
	u.stop = stop
	t.Cleanup(stop)
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, stop }
	go func() { u.code <- run(append([]string{"up", "--output", "json"}, args...), o) }()
	u.await("the addresses",
		func() bool { return json.NewDecoder(bytes.NewBufferString(u.out.String())).Decode(&u.at) == nil })
	return u
}

func (u *running) await(what string, ok func() bool) {
	u.t.Helper()
	for !ok() {
		select {
		case c := <-u.code:
			u.t.Fatalf("it ended with %d before %s:\n%s", c, what, u.notes.String())
		default:
			pause.For(u.t.Context(), 10*time.Millisecond)
		}
	}
}

// end interrupts up, which then ends cleanly.
func (u *running) end() {
	u.t.Helper()
	u.stop()
	if c := <-u.code; c != 0 {
		u.t.Errorf("exit code %d:\n%s", c, u.notes.String())
	}
}

// Document 003's manifests run as they are, except that the picker has 10 s instead of 100 ms, after which a request
// would pass without it: the route calls the picker of the EnvoyExtensionPolicy, the decode workers'
// sidecars prefill on other workers, and the documented headers come back. Spans are connected as in llm-d.
func TestDocument003(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../../examples/manifests/document-003")); err != nil {
		t.Fatal(err)
	}
	gateway := filepath.Join(dir, "gateway.yaml")
	text, err := os.ReadFile(gateway)
	if err == nil {
		err = os.WriteFile(gateway, bytes.Replace(text, []byte("Timeout: 100ms"), []byte("Timeout: 10s"), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Run("deployments", func(t *testing.T) {
		t.Parallel()
		document003(t, 252, "llm-decode-worker-", "llm-prefill-worker-", "-f", dir)
	})
	// Without Deployments the pods are those that its InferenceModel asks for.
	t.Run("model", func(t *testing.T) {
		t.Parallel()
		args := []string{}
		for _, name := range []string{"gateway", "pool", "picker", "picker-config", "headers", "policies", "model"} {
			args = append(args, "-f", dir+"/"+name+".yaml")
		}
		document003(t, 253, "llama-70b-model-decode-", "llama-70b-model-prefill-", args...)
	})
}

func document003(t *testing.T, network int, decode, prefill string, args ...string) {
	spans := &spanSink{}
	collector := httptest.NewServer(spans)
	defer collector.Close()
	u := bringUp(t, append(args, "--otlp", collector.URL, "--listen",
		fmt.Sprintf("127.%d.%d.%d", network, os.Getpid()%250, os.Getpid()/250%250+1))...)
	const body = `{"model":"meta-llama/Llama-2-70b-hf","max_tokens":4,"messages":[{"role":"user","content":"%d: why ` +
		`do wind tunnels matter for aviation, in a few words, please?"}]}`
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	asked := 0
	ask := func(url, host string) *http.Response {
		t.Helper()
		asked++ // another prompt each time: none is cached
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions",
			strings.NewReader(fmt.Sprintf(body, asked)))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if len(u.at.Listeners) != 2 {
		t.Fatalf("%+v", u.at)
	}
	for _, l := range u.at.Listeners {
		resp := ask(l.URL, "llm.example.com")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s\n%s", l.URL, resp.Status, u.notes.String())
		}
		for name, want := range map[string]string{"X-Decode-Pod": decode, "X-Prefill-Pod": prefill,
			"X-Selected-Pod": decode, "X-Response-Time-Ms": "", "X-Kv-Transfer-Time-Ms": "", "X-Request-Id": ""} {
			if got := resp.Header.Get(name); got == "" || !strings.HasPrefix(got, want) || strings.Contains(got, "%") {
				t.Errorf("%s: %s is %q; expected %s…", l.URL, name, got, want)
			}
		}
		if got := ask(l.URL, "other.example.com").StatusCode; got != http.StatusNotFound {
			t.Errorf("another host: %d", got)
		}
	}
	transferred := false
	for _, p := range u.at.Pods {
		if p.Sidecar == "" {
			continue
		}
		resp, err := client.Get("http://" + p.Sidecar + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if value, ours := strings.CutPrefix(line, "llmd_sidecar_kv_cache_transfer_bytes "); ours {
				transferred = transferred || strings.TrimSpace(value) != "0"
			}
		}
	}
	if !transferred {
		t.Error("sidecars say that no byte of a KV cache was transferred")
	}
	u.end()
	for _, want := range []string{"llm_d.pd_proxy.POST /v1/chat/completions < gateway.request",
		"llm_request < HTTP POST", "pick_endpoints < run_scheduler_profile"} {
		if !spans.hang(want) {
			t.Errorf("no %s among the spans of %v", want, spans.spans)
		}
	}
}

// spanSink is a small collector.
type spanSink struct {
	mu    sync.Mutex
	spans map[string]*tracepb.Span // by id
}

func (s *spanSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var m tracepb.TracesData
	if err != nil || proto.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spans == nil {
		s.spans = map[string]*tracepb.Span{}
	}
	for _, rs := range m.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, x := range ss.Spans {
				s.spans[string(x.SpanId)] = x
			}
		}
	}
}

// hang reports whether a span is below another, by their names: "child < parent".
func (s *spanSink) hang(want string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.spans {
		if p := s.spans[string(x.ParentSpanId)]; p != nil && x.Name+" < "+p.Name == want &&
			string(p.TraceId) == string(x.TraceId) {
			return true
		}
	}
	return false
}
