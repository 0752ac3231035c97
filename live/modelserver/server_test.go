package modelserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/windtunnel/windtunnel/core/load/response"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/held"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a server under test with what it recorded.
type bench struct {
	*Server
	t *testing.T
	*http.Client
	mu     sync.Mutex
	events []record.Event
	moved  chan struct{}
}

func fixed(d time.Duration) *dist.Dist {
	x := dist.Fixed(machine.FromDuration(d))
	return &x
}

// fast is a server that answers at once.
func fast() ServerOptions {
	return ServerOptions{Models: []string{"m"}, Prefill: fixed(time.Millisecond),
		TokenTime: fixed(200 * time.Microsecond),
		Engine:    engine.Config{Batching: engine.BatchingIndependent}}
}

func start(t *testing.T, o ServerOptions) *bench {
	t.Helper()
	return startWith(t, Options{Servers: []ServerOptions{o}, Seed: 1})
}

func startWith(t *testing.T, o Options) *bench {
	t.Helper()
	b := &bench{t: t, moved: make(chan struct{}, 1)}
	o.Recorder = record.Func(b.record)
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Server = f.Servers()[0]
	b.Client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		b.Client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		f.Stop(ctx)
	})
	return b
}

// http2 makes the bench's client speak HTTP/2 without TLS.
func (b *bench) http2() *bench {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	b.Client.Transport.(*http.Transport).Protocols = &p
	return b
}

func (b *bench) record(e record.Event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	b.mu.Unlock()
	select {
	case b.moved <- struct{}{}:
	default:
	}
}

func (b *bench) steps(request string) []record.Step {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []record.Step
	for _, e := range b.events {
		if request == "" || e.Request == request {
			out = append(out, e.Step)
		}
	}
	return out
}

// until waits for a condition that changes with what the server does.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-b.moved:
		case <-poll.C:
		case <-deadline.C:
			b.t.Fatalf("waited in vain: %s; steps %v", what, b.steps(""))
		}
	}
}

func (b *bench) seen(request string, step record.Step) func() bool {
	return func() bool {
		for _, s := range b.steps(request) {
			if s == step {
				return true
			}
		}
		return false
	}
}

// idle is true once nothing is left of any request.
func (b *bench) idle() bool {
	st := b.EngineStats()
	return b.InFlight() == 0 && st.Running == 0 && st.Waiting == 0
}

func (b *bench) post(path, body string, header ...string) (*http.Response, string) {
	b.t.Helper()
	req, _ := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.URL()+path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(all)
}

// heldCall is a held-open request that the test drives by hand.
type heldCall struct {
	pw       *io.PipeWriter
	resp     chan *http.Response
	err      chan error
	cancel   context.CancelFunc
	boundary string
}

func (b *bench) held(id, payload string, header ...string) *heldCall {
	pr, pw := io.Pipe()
	ctx, cancel := context.WithCancel(b.t.Context())
	c := &heldCall{pw: pw, resp: make(chan *http.Response, 1), err: make(chan error, 1), cancel: cancel,
		boundary: "B-" + id}
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.URL()+"/v1/chat/completions", pr)
	req.Header.Set("Content-Type", held.ContentType(c.boundary))
	req.Header.Set("X-Request-Id", id)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	go func() {
		resp, err := b.Do(req)
		if err != nil {
			c.err <- err
			return
		}
		c.resp <- resp
	}()
	if payload != "" {
		go func() { _, _ = pw.Write(held.Part1(c.boundary, []byte(payload))) }()
	}
	b.t.Cleanup(cancel)
	return c
}

func (c *heldCall) response(t *testing.T) *http.Response {
	t.Helper()
	select {
	case r := <-c.resp:
		t.Cleanup(func() { r.Body.Close() })
		return r
	case err := <-c.err:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("no response")
	}
	return nil
}

func (c *heldCall) part2(metadata string) {
	_, _ = c.pw.Write(held.Part2(c.boundary, metadata))
	_ = c.pw.Close()
}

const chatBody = `{"model":"m","messages":[{"role":"user","content":"Hello there"}],"max_tokens":5`

func TestPlainStream(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	resp, body := b.post("/v1/chat/completions", chatBody+`,"stream":true,"stream_options":{"include_usage":true}}`,
		"X-Request-Id", "r1")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	if len(events) != 1+5+1+1 || events[7] != "data: [DONE]" {
		t.Fatalf("got %d events: %s", len(events), body)
	}
	for _, e := range events[:7] {
		if !json.Valid([]byte(strings.TrimPrefix(e, "data: "))) {
			t.Fatalf("not JSON: %s", e)
		}
	}
	want := []record.Step{record.RequestReceived, record.PrefillStarted, record.PrefillFinished, record.FirstTokenSent,
		record.DecodeStarted, record.LastTokenSent}
	if got := b.steps("r1"); !equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	b.until("idle", b.idle)
}

func TestPlainWhole(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		b := start(t, fast())
		payload := chatBody + `,"n":2}`
		if path == "/v1/completions" {
			payload = `{"model":"m","prompt":"Hello","max_tokens":5,"n":2}`
		}
		resp, body := b.post(path, payload)
		var o struct {
			Choices []struct {
				Index        int
				Message      struct{ Content string }
				Text         string
				FinishReason string `json:"finish_reason"`
			}
			Usage struct {
				CompletionTokens int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(body), &o); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %s", err, body)
		}
		if len(o.Choices) != 2 || o.Choices[1].Index != 1 || o.Choices[0].FinishReason != "length" ||
			o.Usage.CompletionTokens != 10 ||
			o.Choices[0].Message.Content+o.Choices[0].Text == "" {
			t.Fatalf("got %s", body)
		}
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stream, h2 bool }{
		"stream over HTTP/1.1": {true, false}, "whole over HTTP/1.1": {false, false},
		"stream over HTTP/2": {true, true}, "whole over HTTP/2": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, fast())
			if c.h2 {
				b.http2()
			}
			payload := chatBody + "}"
			if c.stream {
				payload = chatBody + `,"stream":true}`
			}
			call := b.held("r1", payload)
			resp := call.response(t) // headers and first token while the request is open
			first := make([]byte, 64)
			if n, err := resp.Body.Read(first); n == 0 {
				t.Fatal(err)
			}
			if got := b.steps("r1"); got[len(got)-1] != record.FirstTokenSent {
				t.Fatalf("went on before part 2: %v", got)
			}
			rd := response.NewReader(resp.Header.Get("Content-Type"))
			call.part2("secret")
			rest, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = rd.Write(append(bytes.TrimRight(first, "\x00"), rest...))
			rd.Close()
			f := rd.Facts(resp.StatusCode)
			f.Want, f.Known = "secret", true
			if outcome, reason := f.Outcome(); outcome != record.Completed {
				t.Fatalf("%s: %s\n%s%s", outcome, reason, first, rest)
			}
			if rd.Tokens() != 5 {
				t.Fatalf("%d tokens", rd.Tokens())
			}
			want := []record.Step{record.Part1Received, record.PrefillStarted, record.PrefillFinished,
				record.FirstTokenSent,
				record.Part2Received, record.DecodeStarted, record.LastTokenSent}
			if got := b.steps("r1"); !equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			b.until("idle", b.idle)
		})
	}
}

func equal(a, b []record.Step) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		slow := fast()
		slow.Prefill, slow.TokenTime = fixed(time.Hour), fixed(20*time.Millisecond)
		quick := fast()
		quick.TokenTime = fixed(20 * time.Millisecond)
		long := strings.Replace(chatBody, `"max_tokens":5`, `"max_tokens":5000,"stream":true}`, 1)
		for name, c := range map[string]struct {
			o     ServerOptions
			leave func(b *bench, call *heldCall)
		}{
			"upload": {slow, func(b *bench, call *heldCall) {
				_, _ = call.pw.Write([]byte("--" + call.boundary + "\r\n"))
				b.until("in flight", func() bool { return b.InFlight() == 1 })
			}},
			"prefill": {slow, func(b *bench, call *heldCall) {
				_, _ = call.pw.Write(held.Part1(call.boundary, []byte(long)))
				b.until("prefill", b.seen("r1", record.PrefillStarted))
			}},
			"hold": {quick, func(b *bench, call *heldCall) {
				_, _ = call.pw.Write(held.Part1(call.boundary, []byte(long)))
				call.response(b.t)
			}},
			"decode": {quick, func(b *bench, call *heldCall) {
				_, _ = call.pw.Write(held.Part1(call.boundary, []byte(long)))
				call.response(b.t)
				call.part2("x")
				b.until("decode", b.seen("r1", record.DecodeStarted))
			}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := start(t, c.o)
				if h2 {
					b.http2()
				}
				call := b.held("r1", "")
				c.leave(b, call)
				call.cancel()
				// Go's HTTP/2 client looks at its context only between reads of the body
				_ = call.pw.CloseWithError(context.Canceled)
				b.until("aborted", b.seen("r1", record.Aborted))
				b.until("idle", b.idle)
			})
		}
	}
}

// A plain client that leaves is seen as well.
func TestPlainClientLeaves(t *testing.T) {
	t.Parallel()
	o := fast()
	o.TokenTime = fixed(20 * time.Millisecond)
	b := start(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.URL()+"/v1/chat/completions",
		strings.NewReader(strings.Replace(chatBody, `5`, `5000`, 1)+`,"stream":true}`))
	resp, err := b.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	b.until("aborted", b.seen("", record.Aborted))
	b.until("idle", b.idle)
}

func TestViolations(t *testing.T) {
	t.Parallel()
	slow := fast()
	slow.Prefill = fixed(time.Hour)
	payload := chatBody + `,"stream":true}`
	for name, c := range map[string]struct {
		o      ServerOptions
		play   func(b *bench, call *heldCall)
		status int
	}{
		"ends in part 1": {fast(), func(b *bench, call *heldCall) {
			_, _ = call.pw.Write(held.Part1(call.boundary, []byte(payload))[:30])
			_ = call.pw.Close()
		}, 400},
		"ends before part 2": {fast(), func(b *bench, call *heldCall) {
			_, _ = call.pw.Write(held.Part1(call.boundary, []byte(payload)))
			b.until("first token", b.seen("r1", record.FirstTokenSent))
			_ = call.pw.Close()
		}, 200},
		"part 2 too early": {slow, func(b *bench, call *heldCall) {
			_, _ = call.pw.Write(held.Part1(call.boundary, []byte(payload)))
			b.until("prefill", b.seen("r1", record.PrefillStarted))
			_, _ = call.pw.Write(held.Part2(call.boundary, "x"))
		}, 400},
		"both parts at once": {slow, func(b *bench, call *heldCall) {
			_, _ = call.pw.Write(append(held.Part1(call.boundary, []byte(payload)), held.Part2(call.boundary, "x")...))
		}, 400},
		"wrong name": {fast(), func(b *bench, call *heldCall) {
			_, _ = call.pw.Write(bytes.Replace(held.Part1(call.boundary, []byte(payload)), []byte("request_payload"),
				[]byte("payload"), 1))
		}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, c.o)
			call := b.held("r1", "")
			go c.play(b, call)
			resp := call.response(t)
			all, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.status || !strings.Contains(string(all), held.ViolationType) {
				t.Fatalf("got %d %s", resp.StatusCode, all)
			}
			_ = call.pw.Close()
			b.until("violation", b.seen("r1", record.Violation))
			b.until("idle", b.idle)
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	payload := chatBody + `,"stream":true}`
	for _, f := range []string{"refuse", "reset", "die-in-prefill", "reset-after=2"} {
		req, _ := http.NewRequest(http.MethodPost, b.URL()+"/v1/chat/completions", strings.NewReader(payload))
		req.Header.Set(modelserver.FaultHeader, f)
		resp, err := b.Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: answered", f)
		}
	}
	for f, want := range map[string]int{"status=503": 503, "status=204": 204, "status=429;delay=1ms": 429,
		"no-body": 200, "oops": 400} {
		resp, body := b.post("/v1/chat/completions", payload, modelserver.FaultHeader, f)
		if resp.StatusCode != want || (f == "no-body" || want == 204) != (body == "") {
			t.Errorf("%s: got %d %q", f, resp.StatusCode, body)
		}
	}
	call := b.held("early", payload, modelserver.FaultHeader, "end-before-part2")
	resp := call.response(t)
	if all, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(all), "[DONE]") {
		t.Errorf("end-before-part2: %v %s", err, all)
	}
	_ = call.pw.Close()
	call = b.held("unavailable", payload, modelserver.FaultHeader, "status=503")
	if resp := call.response(t); resp.StatusCode != 503 {
		t.Errorf("held status=503: got %d", resp.StatusCode)
	}
	b.until("idle", b.idle) // though the request stays open
	_ = call.pw.Close()
	for range 20 {
		b.stallsAfter2(payload)
	}
	call = b.held("stalled", payload, modelserver.FaultHeader, "stall")
	b.until("prefill", b.seen("stalled", record.PrefillStarted))
	call.cancel()
	_ = call.pw.Close()
	b.until("idle", b.idle)
	if resp, _ := b.post("/v1/chat/completions", payload); resp.StatusCode != 200 {
		t.Fatalf("the next request got %d", resp.StatusCode)
	}
}

// stallsAfter2 checks that at most two tokens come, even if the server has made more by the time it sends them.
func (b *bench) stallsAfter2(payload string) {
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.URL()+"/v1/chat/completions",
		strings.NewReader(payload))
	req.Header.Set(modelserver.FaultHeader, "stall=2")
	resp, err := b.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	var all []byte
	for b.until("all its tokens", b.computed); err == nil; {
		part := make([]byte, 1<<16)
		var n int
		n, err = resp.Body.Read(part)
		// the first has no token in it
		if all = append(all, part[:n]...); strings.Count(string(all), `"content":`) >= 3 {
			cancel()
		}
	}
	if strings.Count(string(all), `"content":`) != 3 {
		b.t.Errorf("stall=2: %s", all)
	}
}

// computed is true when the engine has nothing to do.
func (b *bench) computed() bool {
	st := b.EngineStats()
	return st.Running == 0 && st.Waiting == 0
}

func TestErrors(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	for body, want := range map[string]string{
		``:                          `"code":400`,
		`{`:                         `"code":400`,
		`[]`:                        `expected an object`,
		`{"model":"m"}`:             `"param":"messages"`,
		chatBody + `,"n":0}`:        `"param":"n"`,
		chatBody + `,"stream":"x"}`: `stream: expected true or false, got string`,
		`{"model":"x","messages":[{"role":"user","content":"a"}]}`: `"type":"NotFoundError",` +
			`"param":"model","code":404`,
		`{"model":"m","max_tokens":9000,"messages":[{"role":"user","content":"a"}]}`:  `maximum context length is 8192`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"nonsense"}]}]}`:  `unknown part type`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tool_choice":"xx"}`: `tool_choice`,
	} {
		if _, got := b.post("/v1/chat/completions", body); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
	if resp, body := b.post("/v1/nothing", "{}"); resp.StatusCode != 404 || !strings.Contains(body, `"error"`) {
		t.Errorf("unknown path: %d %s", resp.StatusCode, body)
	}
	b.until("idle", b.idle)
}

func TestPlainEndpoints(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	b.post("/v1/chat/completions", chatBody+"}")
	for path, want := range map[string]string{
		"/health": "", "/v1/models": `"id":"m"`,
		"/metrics": `vllm:request_success_total{model_name="m",engine="0",finished_reason="length"} 1.0`,
	} {
		resp, err := b.Get(b.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || !strings.Contains(string(all), want) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, all)
		}
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := fast()
	o.Listen = l.Addr().String()
	f, err := New(Options{Servers: []ServerOptions{fast(), o}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err == nil {
		t.Fatal("started on a taken port")
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
