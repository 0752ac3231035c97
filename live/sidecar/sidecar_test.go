package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/internal/tlsfiles"
)

// lookUps counts the look-ups of names.
var lookUps atomic.Int64

func TestMain(m *testing.M) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		lookUps.Add(1)
		return nil, errors.New("nobody is asked for names in tests")
	}}
	goleak.VerifyTestMain(m)
}

const patience = time.Minute

const (
	chatBody  = `{"model":"m","messages":[{"role":"user","content":"hey"}]}`
	prefilled = `{"choices":[{"message":{"content":"h"}}],"usage":{"prompt_tokens_details":{"cached_tokens":4}},` +
		`"kv_transfer_params":{"remote_engine_id":"e-1","remote_block_ids":[1,2]}}`
	decoded = `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,` +
		`"completion_tokens":1}}`
)

// worker is a fake model server that remembers what it was asked.
type worker struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
	body []string
	then http.HandlerFunc
}

func startWorker(t *testing.T, tls bool, answer string) *worker {
	k := &worker{then: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		k.mu.Lock()
		k.seen, k.body = append(k.seen, r), append(k.body, string(body))
		k.mu.Unlock()
		k.then(w, r)
	})
	if tls {
		k.Server = httptest.NewTLSServer(h)
	} else {
		k.Server = httptest.NewServer(h)
	}
	t.Cleanup(k.Close)
	return k
}

func (k *worker) addr() string { return k.Listener.Addr().String() }

func (k *worker) calls() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.seen)
}

// rig is a sidecar in front of a decode server, together with a prefill server.
type rig struct {
	*Sidecar
	t               *testing.T
	prefill, decode *worker
	client          *http.Client
	mu              sync.Mutex
	log             bytes.Buffer
	events          []record.Event
}

func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *rig) Record(e record.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *rig) count(step record.Step) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if e.Step == step {
			n++
		}
	}
	return n
}

func start(t *testing.T, change func(*rig, *Options)) *rig {
	t.Helper()
	r := &rig{t: t, prefill: startWorker(t, false, prefilled), decode: startWorker(t, false, decoded)}
	o := Options{Listen: "127.0.0.1:0", Decoder: r.decode.addr(), Recorder: r, Seed: 1, PodName: "decode-0",
		BlockBytes: 100, Log: slog.New(slog.NewTextHandler(r, nil))}
	if change != nil {
		change(r, &o)
	}
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Sidecar = s
	way := &http.Transport{}
	r.client = &http.Client{Transport: way}
	t.Cleanup(func() {
		way.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		if n := s.InFlight(); n != 0 {
			t.Errorf("%d requests in flight after the end", n)
		}
	})
	return r
}

func (r *rig) request(ctx context.Context, body string, head ...string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.Addr()+"/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	return req
}

func (r *rig) ask(body string, head ...string) (*http.Response, string) {
	r.t.Helper()
	resp, err := r.client.Do(r.request(r.t.Context(), body, head...))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp, string(text)
}

func (r *rig) get(path string) (int, string) {
	r.t.Helper()
	resp, err := r.client.Get("http://" + r.Addr() + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// Document 003's flow: prefill leg, decode leg, answer; with the headers of
// both.
func TestDisaggregated(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	answers := r.decode.then
	r.decode.then = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set(disagg.TransferHeader, "13.6")
		answers(w, q)
	}
	resp, body := r.ask(chatBody, "x-prefiller-host-port", r.prefill.addr(), "authorization", "Bearer tok",
		"x-forwarded-for", "9.9.9.9")
	if resp.StatusCode != 200 || !strings.Contains(body, `"cached_tokens":4`) {
		t.Fatal(resp.StatusCode, body)
	}
	for _, h := range []string{"X-Prefill-Time-Ms", "X-Decode-Time-Ms", "X-Kv-Transfer-Time-Ms", "X-Total-Time-Ms",
		"X-Prefill-Pod", "X-Decode-Pod"} {
		if resp.Header.Get(h) == "" {
			t.Errorf("no %s", h)
		}
	}
	if h := resp.Header.Get(disagg.TransferHeader); h != "13.6" {
		t.Errorf("the KV transfer took %s ms, the decode server said 13.6", h)
	}
	for _, leg := range []*worker{r.prefill, r.decode} {
		h := leg.seen[0].Header
		if leg.calls() != 1 || h.Get("Authorization") != "Bearer tok" ||
			h.Get("X-Forwarded-For") != "9.9.9.9, 127.0.0.1" ||
			h.Get("X-Request-Id") == "" || h.Get(disagg.PrefillerHeader) != "" || leg.seen[0].Host != r.Addr() {
			t.Errorf("%d calls, %v", leg.calls(), h)
		}
	}
	if a, b := r.prefill.seen[0].Header["X-Request-Id"],
		r.decode.seen[0].Header["X-Request-Id"]; fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("the legs have different ids", a, b)
	}
	if !strings.Contains(r.decode.body[0], `"remote_engine_id":"e-1"`) {
		t.Error(r.decode.body[0])
	}
	if !strings.Contains(r.logged(), "msg=prefill_decision") ||
		!strings.Contains(r.logged(), "decision=disaggregated") {
		t.Error(r.logged())
	}
	_, page := r.get("/metrics")
	for _, want := range []string{`llmd_sidecar_requests_total{status="success"} 1`,
		"llmd_sidecar_prefill_requests_total 1", "llmd_sidecar_decode_requests_total 1",
		"llmd_sidecar_kv_cache_transfer_bytes 200", "llmd_sidecar_kv_cache_transfer_duration_seconds_count 1",
		"llmd_sidecar_kv_cache_transfer_duration_seconds_sum 0.0136", "llmd_sidecar_active_connections 1",
		`llmd_sidecar_request_duration_seconds{quantile="0.99"}`, "llmd_sidecar_ssrf_blocked_requests_total 0",
		"llmd_sidecar_allowlist_size 0", "llmd_sidecar_connection_errors_total 0"} {
		if !strings.Contains(page, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// The times of prefill and decode add up to the whole, and the tokens to the answer, with and without a prefill leg.
func TestSplitOfAnAnswer(t *testing.T) {
	t.Parallel()
	const first = `{"choices":[{"message":{"content":"A"},"kv_metadata":{"kv_handle":"kv://p/a"}}]}`
	for _, c := range []struct {
		name, prefilled string
		session         int
		stream          bool
		kept            bool // the decode server's own time of decoding
		tokens          string
	}{
		{"the decode server", "", 0, false, true, "5"},
		{"the decode server's stream", "", 0, true, true, "5"},
		{"a prefill server", prefilled, 0, false, false, "5"},
		{"a session", first, 10, false, false, "6"},
		{"a session's stream", first, 10, true, false, "6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, func(r *rig, o *Options) { o.SessionCache = c.session })
			r.prefill.then = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.prefilled) }
			r.decode.then = func(w http.ResponseWriter, _ *http.Request) {
				prefix, answer := "", decoded
				if c.stream {
					prefix = http.TrailerPrefix
					answer = "data: {\"choices\":[{\"delta\":{\"content\":\"B\"}}]}\n\ndata: [DONE]\n\n"
					w.Header().Set("Content-Type", "text/event-stream")
				}
				w.Header()[prefix+"X-Decode-Time-Ms"] = []string{"1234567.0"}
				w.Header()[prefix+"X-Tokens-Generated"] = []string{"5"}
				_, _ = io.WriteString(w, answer)
			}
			body, head := chatBody, []string{"te", "trailers"}
			if c.stream {
				body = strings.Replace(body, "{", `{"stream":true,`, 1)
			}
			if c.prefilled != "" {
				head = append(head, "x-prefiller-host-port", r.prefill.addr())
			}
			resp, _ := r.ask(body, head...)
			got := resp.Header
			if c.stream {
				got = resp.Trailer
			}
			if kept := got.Get("X-Decode-Time-Ms") == "1234567.0"; resp.StatusCode != 200 || kept != c.kept ||
				got.Get("X-Tokens-Generated") != c.tokens || got.Get("X-Total-Time-Ms") == "" {
				t.Error(resp.StatusCode, got)
			}
		})
	}
}

// Without the header everything is the client's, byte for byte, and streams.
func TestStraightThroughStreams(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	next := make(chan struct{})
	r.decode.then = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	}
	req := r.request(t.Context(), chatBody, "te", "trailers")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		for lines.Scan() && lines.Text() == "" {
		}
		if got := lines.Text(); got != fmt.Sprintf("data: %d", i) {
			t.Fatalf("event %d: %q", i, got)
		}
		next <- struct{}{} // only now goes the next one out
	}
	for lines.Scan() {
	}
	if resp.Trailer.Get("X-Decode-Time-Ms") == "" {
		t.Error("no timing in the trailers")
	}
	if r.decode.body[0] != chatBody || r.prefill.calls() != 0 {
		t.Error(r.decode.body)
	}
}

// Whoever is not waited for is not kept busy.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for _, leg := range []string{"prefill", "decode"} {
		r := start(t, nil)
		here, gone := make(chan struct{}), make(chan struct{})
		wait := func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			close(here)
			<-q.Context().Done()
			close(gone)
		}
		if leg == "prefill" {
			r.prefill.then = wait
		} else {
			r.decode.then = wait
		}
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := r.client.Do(
				r.request(ctx, chatBody, "x-prefiller-host-port", r.prefill.addr())); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		<-here
		leave()
		<-gone
		<-done
		until(t, "the record says so", func() bool { return r.count(record.Aborted) == 1 })
		if leg == "prefill" && r.decode.calls() != 0 {
			t.Error("decoded for nobody")
		}
	}
}

// A decode server that breaks off in the middle is seen by the client.
func TestBrokenAnswer(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.decode.then = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	resp, err := r.client.Do(r.request(t.Context(), chatBody))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err = io.ReadAll(resp.Body); err == nil {
		t.Fatal("the client takes a cut answer for a whole one")
	}
	if r.count(record.Aborted) != 1 {
		t.Error("no event")
	}
}

// A fake prefiller outside the pool is never contacted; the list follows the
// file.
func TestSSRFProtection(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	fake := startWorker(t, false, prefilled)
	list := func(w ...*worker) []byte {
		b := "endpoints:\n"
		for i, k := range w {
			host, port, _ := net.SplitHostPort(k.addr())
			b += fmt.Sprintf("- {name: w%d, address: %s, port: %q}\n", i, host, port)
		}
		return []byte(b)
	}
	r := start(t, func(r *rig, o *Options) {
		o.Protect, o.EndpointsFile = true, file
		if err := os.WriteFile(file, list(r.prefill), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	if resp, _ := r.ask(chatBody, "x-prefiller-host-port", r.prefill.addr()); resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode)
	}
	for _, host := range []string{fake.addr(), "http://" + fake.addr(),
		strings.Replace(fake.addr(), "127.0.0.1", "localhost", 1)} {
		resp, body := r.ask(chatBody, "x-prefiller-host-port", host)
		if resp.StatusCode != 403 || body != disagg.Blocked {
			t.Errorf("%s: %d %s", host, resp.StatusCode, body)
		}
	}
	if resp, _ := r.ask(chatBody, "x-prefiller-host-port", r.prefill.addr()+","+fake.addr()); resp.StatusCode != 200 {
		t.Error(resp.StatusCode) // the second one is left out
	}
	if fake.calls() != 0 || r.count(record.PrefillerBlocked) != 4 {
		t.Fatalf("contacted %d times, %d events", fake.calls(), r.count(record.PrefillerBlocked))
	}
	if _, page := r.get("/metrics"); !strings.Contains(page, "llmd_sidecar_ssrf_blocked_requests_total 4") ||
		!strings.Contains(page, "llmd_sidecar_allowlist_size 1") {
		t.Error(page)
	}
	if err := os.WriteFile(file, []byte("endpoints: 5"), 0o644); err != nil { // the old list stays
		t.Fatal(err)
	}
	until(t, "the bad file is told", func() bool { return strings.Contains(r.logged(), "the old state stays") })
	if err := os.WriteFile(file, list(r.prefill, fake), 0o644); err != nil {
		t.Fatal(err)
	}
	until(t, "the new pod is allowed", func() bool {
		resp, _ := r.ask(chatBody, "x-prefiller-host-port", fake.addr())
		return resp.StatusCode == 200
	})
	if strings.Count(r.logged(), "allowlist_updated") < 2 {
		t.Error(r.logged())
	}
	if _, err := Start(Options{Listen: "127.0.0.1:0", Decoder: "127.0.0.1:1", Protect: true}); err == nil {
		t.Error("a protected sidecar without a pool started")
	}
}

// HTTPS on every side, against one's own CA, which may change.
func TestTLS(t *testing.T) {
	t.Parallel()
	prefill, decode := startWorker(t, true, prefilled), startWorker(t, true, decoded)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write := func() {
		cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: prefill.Certificate().Raw})
		if err := os.WriteFile(ca, cert, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	other, err := tlsfiles.SelfSigned(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ca,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificates[0].Certificate[0]}),
		0o644); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(_ *rig, o *Options) {
		o.Decoder, o.CAFile = decode.addr(), ca
		o.Prefiller, o.DecoderTLS = LegTLS{On: true}, LegTLS{On: true, Skip: true}
	})
	if resp, body := r.ask(chatBody, "x-prefiller-host-port", prefill.addr()); resp.StatusCode != 502 {
		t.Fatal("a server that nobody vouches for was trusted", body)
	}
	write()
	until(t, "the new CA counts", func() bool {
		resp, _ := r.ask(chatBody, "x-prefiller-host-port", prefill.addr())
		return resp.StatusCode == 200
	})
	s, err := Start(Options{Listen: "127.0.0.1:0", Decoder: decode.addr(),
		TLS: TLS{Serve: ServeTLS{On: true}, DecoderTLS: LegTLS{On: true, Skip: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(t.Context())
	way := prefill.Client().Transport.(*http.Transport).Clone()
	way.TLSClientConfig.InsecureSkipVerify = true
	defer way.CloseIdleConnections()
	resp, err := (&http.Client{Transport: way}).Post("https://"+s.Addr()+"/v1/chat/completions", "application/json",
		strings.NewReader(chatBody))
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// /metrics is the decode server's, whatever becomes of it; /health is the
// sidecar's own.
func TestWorkerPages(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.decode.then = func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/metrics" {
			_, _ = io.WriteString(w, "vllm:num_requests_running 3")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if status, page := r.get("/metrics"); status != 200 || !strings.Contains(page, "vllm:num_requests_running 3\n") ||
		!strings.Contains(page, "llmd_sidecar_requests_total") {
		t.Error(status, page)
	}
	if status, body := r.get("/health"); status != 200 || body != "" {
		t.Errorf("before a decode server that is not healthy: %d %q", status, body)
	}
	r.decode.Close()
	if status, body := r.get("/health"); status != 200 || body != "" {
		t.Errorf("before a decode server that is gone: %d %q", status, body)
	}
	if status, page := r.get("/metrics"); status != 200 || strings.Contains(page, "vllm:") {
		t.Error(status, page)
	}
	status, body := r.get("/v1/models")
	if status != 503 || !strings.Contains(body, "The decode node is not ready") {
		t.Error(status, body)
	}
	if resp, body := r.ask(chatBody); resp.StatusCode != 503 ||
		!strings.Contains(body, "The decode node is not ready") {
		t.Error(resp.StatusCode, body)
	}
}

// Document 003 takes pods out of the pool by what the decode server says.
func TestHealthOfTheDecoder(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *rig, o *Options) { o.DecoderHealth = true })
	if status, _ := r.get("/health"); status != 200 {
		t.Error("not healthy before a decode server that is", status)
	}
	r.decode.then = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	if status, _ := r.get("/health"); status != 503 {
		t.Error("healthy before a decode server that is not", status)
	}
	r.decode.Close()
	if status, _ := r.get("/health"); status != 503 {
		t.Error("healthy before a decode server that is gone", status)
	}
}

// Sixteen ways to prefillers are kept, and their connections with them.
func TestProxyCache(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for i := range proxyCache + 4 {
		target := disagg.Target{Host: "10.0.0." + fmt.Sprint(i), Port: 1, Addr: netip.MustParseAddr("127.0.0.1")}
		if first := r.proxies.to(&target, new(url.URL)); first != r.proxies.to(&target, new(url.URL)) {
			t.Fatal("a way is not kept")
		}
	}
	if n := r.proxies.by.Len(); n != proxyCache {
		t.Fatalf("%d ways are kept", n)
	}
	for i := range 200 { // all who come at once have the same one: no connections are lost
		target := disagg.Target{Host: "10.0.1." + fmt.Sprint(i), Port: 1, Addr: netip.MustParseAddr("127.0.0.1")}
		var ways [8]*http.Transport
		var all sync.WaitGroup
		for k := range ways {
			all.Go(func() { ways[k] = r.proxies.to(&target, new(url.URL)) })
		}
		all.Wait()
		for _, way := range ways {
			if way != ways[0] {
				t.Fatal("two ways to one prefill server")
			}
		}
	}
}

// Every data-parallel rank has a port of its own before its decode server.
func TestRanks(t *testing.T) {
	t.Parallel()
	// Two ports in a row, on both sides.
	pair := func() (a, b net.Listener) {
		for {
			a, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			next, _ := offsetPort(a.Addr().String(), 1)
			if b, err := net.Listen("tcp", next); err == nil {
				return a, b
			}
			a.Close()
		}
	}
	a, b := pair()
	decoder := a.Addr().String()
	for i, l := range []net.Listener{a, b} {
		s := &http.Server{Handler: http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "rank %d", i) })}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { s.Close() })
	}
	var listen string
	var s *Sidecar
	for {
		c, d := pair()
		listen = c.Addr().String()
		c.Close()
		d.Close()
		var err error
		if s, err = Start(Options{Listen: listen, Decoder: decoder, Ranks: 2}); err == nil {
			break
		}
		if !errors.Is(err, syscall.EADDRINUSE) { // otherwise another program took a port meanwhile
			t.Fatal(err)
		}
	}
	defer s.Stop(t.Context())
	defer http.DefaultClient.CloseIdleConnections()
	for i := range 2 {
		address, _ := offsetPort(listen, i)
		resp, err := http.Post("http://"+address+"/v1/completions", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != fmt.Sprintf("rank %d", i) {
			t.Errorf("rank %d: %s", i, body)
		}
	}
}

// sglang's prefill leg is not waited for, and runs on after the answer.
func TestDetachedLeg(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *rig, o *Options) { o.Disagg.Connector = connector.SGLang })
	finish := make(chan struct{})
	r.prefill.then = func(w http.ResponseWriter, q *http.Request) {
		select {
		case <-finish:
			_, _ = io.WriteString(w, prefilled)
		case <-q.Context().Done():
		}
	}
	if resp, _ := r.ask(chatBody, "x-prefiller-host-port", r.prefill.addr()); resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode)
	}
	until(t, "the answer's end is recorded", func() bool { return r.count(record.ResponseEndSeen) == 1 })
	if r.count(record.PrefillLegEnded) != 0 {
		t.Fatal("the answer waited for the prefill leg")
	}
	close(finish)
	until(t, "the prefill leg ends by itself", func() bool { return r.count(record.PrefillLegEnded) == 1 })
}

// A prefiller that answers 503 is asked again, 200 ms later.
func TestRetry(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *rig, o *Options) { o.Disagg.Retries, o.Disagg.RetryBackoff = 1, 1e6 })
	ok := r.prefill.then
	r.prefill.then = func(w http.ResponseWriter, q *http.Request) {
		if r.prefill.calls() == 1 {
			w.WriteHeader(503)
			return
		}
		ok(w, q)
	}
	if resp, _ := r.ask(chatBody, "x-prefiller-host-port", r.prefill.addr()); resp.StatusCode != 200 ||
		r.prefill.calls() != 2 {
		t.Fatal(resp.StatusCode, r.prefill.calls())
	}
}

// A body has a limit, whether its request is prefilled elsewhere or not.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *rig, o *Options) { o.MaxBodyBytes = 100 })
	long := `{"model":"` + strings.Repeat("x", 200) + `"}`
	if resp, _ := r.ask(long, "x-prefiller-host-port", r.prefill.addr()); resp.StatusCode != 413 {
		t.Error(resp.StatusCode)
	}
	if resp, _ := r.ask(long); resp.StatusCode != 413 {
		t.Error(resp.StatusCode)
	}
}

// The sidecar's own port shows document 002's session cache, the last used session first.
func TestSessionsPage(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	r := start(t, func(_ *rig, o *Options) {
		o.SessionCache, o.MetricsListen = 10, "127.0.0.1:0"
		o.Now = func() machine.Time { return machine.Time(now.Load()) * machine.Second }
	})
	r.prefill.then = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"A"},"kv_metadata":{"kv_handle":"kv://p/a"}}]}`)
	}
	for _, name := range []string{"a", "b"} {
		r.ask(chatBody, "x-prefiller-host-port", r.prefill.addr(), "x-session-id", name)
	}
	now.Store(50)
	next := `{"model":"m","messages":[{"role":"user","content":"hey"},{"role":"assistant","content":"mine"},` +
		`{"role":"user","content":"more"}]}`
	r.ask(next, "x-session-id", "a")
	now.Store(60)
	resp, err := r.client.Get("http://" + r.MetricsAddr() + "/debug/sessions")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all []struct {
		Session, KVHandle string
		Messages          int
		SecondsSinceUse   float64
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Session != "a" || all[1].Session != "b" || all[0].Messages != 4 ||
		all[0].KVHandle != "kv://p/a" || all[0].SecondsSinceUse != 10 || all[1].SecondsSinceUse != 60 {
		t.Errorf("%+v", all)
	}
}
