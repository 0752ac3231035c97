package modelserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/live/modelserver/vllmservice"
	"github.com/windtunnel/windtunnel/live/serve"
)

// A client without a key sees the server's health and nothing else. In particular, it cannot end the server, over HTTP
// or gRPC.
func TestKeysGuardAllButHealth(t *testing.T) {
	t.Parallel()
	o := batched()
	o.APIKeys = []string{"secret"}
	b := start(t, o)
	ask := func(method, path, key string) int {
		req, _ := http.NewRequestWithContext(t.Context(), method, b.URL()+path, strings.NewReader(`{}`))
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := b.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, path := range []string{"/health", "/health/ready", "/ping", "/version", "/load", "/metrics", "/query"} {
		if got := ask("GET", path, ""); got == 401 || got == 403 {
			t.Errorf("%s needs a key: %d", path, got)
		}
	}
	for path, method := range map[string]string{"/v1/models": "GET", "/v1/completions": "POST",
		"/inference/v1/generate": "POST", "/tokenize": "POST", "/detokenize": "POST",
		"/admin/crash": "POST", "/admin/config": "GET", "/admin/drain": "POST", "/sleep": "POST", "/wake_up": "POST",
		"/is_sleeping": "GET", "/reset_prefix_cache": "POST", "/fake_metrics": "POST", "/nowhere": "GET"} {
		if got := ask(method, path, ""); got != 401 {
			t.Errorf("%s %s without a key: %d", method, path, got)
		}
		if got := ask(method, path, "wrong"); got != 401 {
			t.Errorf("%s %s with a wrong key: %d", method, path, got)
		}
	}
	if !b.healthy() {
		t.Fatal("somebody without a key has ended the engine")
	}
	if got := ask("POST", "/admin/crash", "secret"); got != 200 || b.healthy() {
		t.Errorf("with the key: %d", got)
	}

	o2 := batched()
	o2.APIKeys = o.APIKeys
	b2 := start(t, o2)
	conn := dial(t, b2)
	engine := vllmservice.NewVllmEngineClient(conn)
	if _, err := engine.GetModelInfo(t.Context(),
		&vllmgrpc.GetModelInfoRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("gRPC without a key: %v", err)
	}
	if _, err := engine.Abort(t.Context(), &vllmgrpc.AbortRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("gRPC without a key: %v", err)
	}
	with := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret")
	if _, err := engine.GetModelInfo(with, &vllmgrpc.GetModelInfoRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health needs a key: %v", err)
	}
}

// Without keys a server is ended by its own machine alone, not by those for whom
// a proxy on it speaks.
func TestControlsAreLocal(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	for _, path := range []string{"/admin/crash", "/admin/drain", "/sleep", "/reset_prefix_cache", "/fake_metrics",
		"/admin/config"} {
		if resp, body := b.post(path, `{}`, "X-Forwarded-For", "203.0.113.5"); resp.StatusCode != 403 ||
			!strings.Contains(body, "--api-key") {
			t.Errorf("%s for somebody elsewhere: %d %s", path, resp.StatusCode, body)
		}
	}
	for _, fault := range []string{"crash", "delay=1ms; fail-rank=0"} {
		if resp, body := b.post("/v1/completions", `{"prompt":"x","max_tokens":1}`, modelserver.FaultHeader, fault,
			"X-Forwarded-For", "203.0.113.5"); resp.StatusCode != 400 || !strings.Contains(body, "--api-key") {
			t.Errorf("%s by somebody elsewhere: %d %s", fault, resp.StatusCode, body)
		}
	}
	if !b.healthy() {
		t.Fatal("the engine is dead")
	}
	if resp, body := b.post("/admin/crash", "", "X-Forwarded-For", "127.0.0.1"); resp.StatusCode != 200 || b.healthy() {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// trickle sends a request's head and then a byte of its body every so often,
// until there is an answer.
func trickle(t *testing.T, address, head string, every time.Duration) (*http.Response, error) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(c, head)
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
			case <-quit:
				return
			}
		}
	}()
	return http.ReadResponse(bufio.NewReader(c), nil)
}

// A body that trickles or stops is cut, whole or part 1 of a held one, and the
// server is idle then; a held request whose part 1 is there waits for as long
// as its picker likes.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Body = serve.BodyLimits{Idle: 2 * time.Second, Total: 2400 * time.Millisecond} // a whole body comes in time
	b := start(t, o)
	const boundary = "windtunnel-1234567890"
	begun, _, _ := strings.Cut(string(held.Part1(boundary, []byte(`{"a":"b"}`))), "b\"}")
	const plain = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: " +
		"application/json\r\nContent-Length: 1000\r\n\r\n"
	var all sync.WaitGroup
	for name, head := range map[string]string{
		"plain": plain,
		"held": "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=" +
			boundary + "\r\nContent-Length: 1000\r\n\r\n" + begun,
		"json": "POST /v1/load_lora_adapter HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n",
	} {
		for _, every := range []time.Duration{20 * time.Millisecond, time.Hour} {
			all.Go(func() {
				resp, err := trickle(t, b.Address(), head, every)
				if err != nil || resp.StatusCode != http.StatusRequestTimeout {
					t.Errorf("%s every %v: %v %v", name, every, resp, err)
				}
			})
		}
	}
	all.Wait()
	b.until("nothing runs", b.idle)
	call := b.held("slow", `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"a"}]}`)
	resp := call.response(t)
	// The limits pass while the request is held: for bodies that begin now.
	for _, every := range []time.Duration{20 * time.Millisecond, time.Hour} {
		if resp, err := trickle(t, b.Address(), plain, every); err != nil ||
			resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("beside a held request: %v %v", resp, err)
		}
	}
	go call.part2("metadata")
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), `"finish_reason":"length"`) {
		t.Errorf("the held request: %s %v", body, err)
	}
}

// A chat template that takes about ten seconds ends soon after its client leaves, so that it does not outlast the
// drain.
func TestTemplatesEndWithTheirClient(t *testing.T) {
	t.Parallel()
	o := fast()
	var err error
	o.ChatTemplate, err = chattemplate.Parse("slow.jinja",
		"{% for a in range(9999) %}{% for b in range(800) %}{% endfor %}{% endfor %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, o)
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		ctx, leave := context.WithCancel(t.Context())
		client := &watchedClient{Context: ctx}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }() // http.ErrAbortHandler: the client is gone
			b.inference(modelserver.APIOf(path))(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path,
				strings.NewReader(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"}]}`)).
				WithContext(client))
		}()
		b.until("the template asks for its client", func() bool { return client.asked.Load() > 0 })
		leave()
		before := client.asked.Load()
		<-ended
		if after := client.asked.Load() - before; after > 100 {
			t.Errorf("%s: the template asked %d times more for a client that had left", path, after)
		}
	}
}

// watchedClient is a request's context that counts how often the server asks whether the client has left.
type watchedClient struct {
	context.Context
	asked atomic.Int64
}

func (c *watchedClient) Err() error {
	c.asked.Add(1)
	return c.Context.Err()
}

// quiet is a publisher that drops all events.
type quiet struct{}

func (quiet) Publish(kv.Event) {}
func (quiet) Close()           {}

// A server that listens on all addresses gives others one at which it can be reached: in its topic, for its caches, in
// its headers.
func TestWildcardIsNoIdentity(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"[::]:0", "0.0.0.0:0"} {
		for _, advertise := range []string{"", "127.0.0.1"} {
			o := batched()
			o.Listen, o.Advertise, o.PodName = listen, advertise, "pod"
			made := make(chan string, 1)
			o.KVEvents = func(_, endpoint string) (KVPublisher, error) { made <- endpoint; return quiet{}, nil }
			b := start(t, o)
			want := advertise
			if want == "" {
				want, _ = serve.Advertised("0.0.0.0", "", noEnvironment)
			}
			_, port, _ := net.SplitHostPort(b.listener.Addr().String())
			endpoint := net.JoinHostPort(want, port)
			if got := <-made; got != endpoint || b.Address() != endpoint {
				t.Errorf("%s: the topic is of %s, the address %s, want %s", listen, got, b.Address(), endpoint)
			}
			resp, body := b.post("/v1/completions", `{"prompt":"a b c d e","max_tokens":1,`+remoteDecode+`}`)
			var answer struct {
				KV struct {
					Host string `json:"remote_host"`
				} `json:"kv_transfer_params"`
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.KV.Host != want {
				t.Errorf("%s: remote_host %q, want %q: %s", listen, answer.KV.Host, want, body)
			}
			if got := resp.Header.Get("X-Inference-Port"); got != port {
				t.Errorf("%s: X-Inference-Port %q, want %s", listen, got, port)
			}
			b.mu.Lock()
			for _, e := range b.events {
				if e.Endpoint != endpoint {
					t.Errorf("%s: %s of %q", listen, e.Step, e.Endpoint)
				}
			}
			b.mu.Unlock()
		}
	}
}

// A listener that dies is no secret: the fleet reports it.
func TestDeadListenersAreReported(t *testing.T) {
	t.Parallel()
	dead := start(t, fast())
	if err := dead.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-dead.fleet.Failed(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	b := start(t, fast())
	b.fleet.Stop(context.Background())
	select {
	case err := <-b.fleet.Failed():
		t.Errorf("it was told to stop: %v", err)
	default:
	}
}

// Whatever a model and its adapters are called, the metrics page can be read, and
// says just that.
func TestMetricsOfOddNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a\u200bb", "a\\b", `a"b`, "a\nb", "é 漢字", "\u2028", "a\x00b", "a\xffb", "{}=,", ""} {
		o := batchedLong()
		o.Models = []string{"model " + name}
		o.Adapters = []Adapter{{Name: "adapter " + name, Path: "x"}}
		o.FakeMetrics = &stats.FakeMetrics{}
		fake, err := o.FakeMetrics.With(
			json.RawMessage(`{"loras":[{"running":` + quoted("adapter "+name) + `,"waiting":` + quoted(name) +
				`,"timestamp":1}]}`))
		if err != nil {
			t.Fatal(err)
		}
		o.FakeMetrics = fake
		b := start(t, o)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(b.page()))
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		labels := map[string]string{}
		for _, family := range []string{"vllm:num_requests_running", "vllm:lora_requests_info"} {
			for _, l := range families[family].GetMetric()[0].GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
		}
		valid := strings.ToValidUTF8(name, "\ufffd")
		if labels["model_name"] != "model "+valid || labels["running_lora_adapters"] != "adapter "+valid ||
			labels["waiting_lora_adapters"] != valid {
			t.Errorf("%q became %q", name, labels)
		}
	}
	b := start(t, fast())
	if resp, _ := b.post("/v1/load_lora_adapter",
		`{"lora_name":"`+strings.Repeat("x", maxAdapterText+1)+`","lora_path":"p"}`); resp.StatusCode != 400 {
		t.Errorf("a name without end: %d", resp.StatusCode)
	}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
