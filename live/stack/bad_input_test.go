package stack

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/scenario"
)

// Requests that no model server should ever see.
func TestBadInput(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) { s.Pools[0].EPP.MaxBodyBytes = 4096 }), nil)
	for name, c := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"not JSON":   {"/v1/chat/completions", "oops", 400, "invalid"},
		"empty body": {"/v1/chat/completions", "", 400, ""},
		"no model":   {"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, 400, "model"},
		"model a number": {"/v1/chat/completions", `{"model":7,"messages":[{"role":"user","content":"x"}]}`, 400,
			"model"},
		"messages a word":   {"/v1/chat/completions", `{"model":"m","messages":"x"}`, 400, "messages"},
		"no messages":       {"/v1/chat/completions", `{"model":"m"}`, 400, "messages"},
		"no prompt":         {"/v1/completions", `{"model":"m"}`, 400, "prompt"},
		"an array":          {"/v1/chat/completions", `[]`, 400, ""},
		"null":              {"/v1/chat/completions", `null`, 400, ""},
		"unknown path":      {"/v2/nothing", `{"model":"m"}`, 400, "/v2/nothing"},
		"over the limit":    {"/v1/chat/completions", strings.Repeat("x", 5000), 413, "4096"},
		"cut in the middle": {"/v1/chat/completions", `{"model":"m","mess`, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.post(c.path, c.body)
			var e struct {
				Error struct {
					Message, Type string
					Code          int
				}
			}
			if err := json.Unmarshal([]byte(a.body), &e); err != nil {
				t.Fatalf("%d, not an OpenAI error: %v %q", a.status, a.err, a.body)
			}
			if a.status != c.status || e.Error.Code != c.status || e.Error.Type == "" ||
				!strings.Contains(e.Error.Message, c.says) {
				t.Fatalf("got %d %q, want %d with %q", a.status, a.body, c.status, c.says)
			}
		})
	}
	if n := r.rec.count(record.Server, record.Part1Received) +
		r.rec.count(record.Server, record.RequestReceived); n != 0 {
		t.Fatalf("%d of them reached a model server", n)
	}
	r.healthy()
}

// A body that outgrows the limit is refused while it is still being sent.
func TestTooLargeMidUpload(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) { s.Pools[0].EPP.MaxBodyBytes = 100_000 }), nil)
	for _, http2 := range []bool{false, true} {
		pr, pw := io.Pipe()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		req := r.request(ctx, http.MethodPost, "/v1/chat/completions", "")
		req.Body, req.ContentLength = pr, -1
		go func() {
			chunk := []byte(strings.Repeat("x", 50_000))
			for {
				if _, err := pw.Write(chunk); err != nil {
					return
				}
			}
		}()
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetHTTP1(!http2)
		tr.Protocols.SetUnencryptedHTTP2(http2)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatalf("http2 %v: %v", http2, err)
		}
		if resp.StatusCode != 413 {
			t.Fatalf("http2 %v: got %d, want 413", http2, resp.StatusCode)
		}
		resp.Body.Close()
		pr.CloseWithError(io.ErrClosedPipe)
		tr.CloseIdleConnections()
	}
	r.healthy()
}

// A body that trickles or stops is answered by the picker, whether Envoy streams
// or collects it; a prefill that is far longer than these limits is not cut.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][2]time.Duration{"trickles": {time.Minute, 2 * time.Second},
		"stops": {2 * time.Second, time.Minute}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, quick(func(s *scenario.Scenario) {
				e := &s.Pools[0].EPP
				e.BodyIdleTimeout, e.BodyTimeout = limits[0], limits[1]
				s.Pools[0].ModelServer.Prefill = dist.Fixed(4 * machine.Second)
			}), nil)
			pr, pw := io.Pipe()
			go func() {
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for i := 0; i < 3 || name == "trickles"; i++ {
					if _, err := pw.Write([]byte(" ")); err != nil {
						return
					}
					<-tick.C
				}
			}()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			req := r.request(ctx, http.MethodPost, "/v1/chat/completions", "")
			req.Body, req.ContentLength = pr, -1
			tr := &http.Transport{}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			pr.Close()
			tr.CloseIdleConnections()
			if resp.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(text), "the request's body ") {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
			if a := r.post("/v1/chat/completions", chat); a.status != 200 || !strings.Contains(a.body, "[DONE]") {
				t.Errorf("a long prefill: %d %s", a.status, a.body)
			}
			r.healthy()
		})
	}
}

// Under the default limits a prefill of half a minute is held: the body's limits
// have ended with the body, and the hold's is longer.
func TestDefaultLimitsHoldALongPrefill(t *testing.T) {
	t.Parallel()
	s := quick(nil)
	c := compiled(t, s).Pools[0].Picker.Replicas[0].Stream
	if c.BodyIdle <= 0 || c.BodyTotal <= c.BodyIdle || c.BodyIdle > 30*machine.Second {
		t.Fatalf("bodies may stop for %v, and take %v", c.BodyIdle, c.BodyTotal)
	}
	x := stream.New(c)
	var fx machine.Effects[stream.Effect]
	x.Input(0, &stream.Message{Kind: stream.Headers,
		Head: header.Of(":method", "POST", ":path", "/v1/chat/completions")}, &fx)
	x.Input(machine.Second, &stream.Message{Kind: stream.Body, Body: []byte(chat), End: true}, &fx)
	x.Input(2*machine.Second, &stream.Message{Kind: stream.Decided, Decision: stream.Decision{Endpoint: "127.0.0.1:1"}},
		&fx)
	first := 32 * machine.Second
	if at, ok := x.Next(); !ok || at <= first {
		t.Fatalf("the next deadline is at %v", at)
	}
	x.Advance(first, &fx)
	x.Input(first, &stream.Message{Kind: stream.ResponseHeaders, Head: header.Of(":status", "200")}, &fx)
	x.Input(first, &stream.Message{Kind: stream.ResponseBody, Body: []byte("data: token\n\n")}, &fx)
	if x.Result() != stream.Running || x.Holding() {
		t.Errorf("%v, still held: %v", x.Result(), x.Holding())
	}
}
