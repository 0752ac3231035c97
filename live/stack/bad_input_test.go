package stack

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/flow"
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
		"not JSON":          {"/v1/chat/completions", "oops", 400, "invalid"},
		"empty body":        {"/v1/chat/completions", "", 400, ""},
		"no model":          {"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, 400, "model"},
		"model a number":    {"/v1/chat/completions", `{"model":7,"messages":[{"role":"user","content":"x"}]}`, 400, "model"},
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
			if a.status != c.status || e.Error.Code != c.status || e.Error.Type == "" || !strings.Contains(e.Error.Message, c.says) {
				t.Fatalf("got %d %q, want %d with %q", a.status, a.body, c.status, c.says)
			}
		})
	}
	if n := r.rec.count(flow.Server, flow.Part1Received) + r.rec.count(flow.Server, flow.RequestReceived); n != 0 {
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
