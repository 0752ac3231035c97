package dynamo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	core "github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/drive"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a frontend with one token for each byte of a body.
func start(t *testing.T) (*Server, func(method, path, body string, routing bool) (int, string)) {
	t.Helper()
	c := core.DefaultConfig()
	s, err := Start(Options{Address: "127.0.0.1:0", Router: core.NewRouter(c, 1, machine.Second), Model: "m",
		BlockSize: c.BlockSize, MaxBodyBytes: 100,
		Tokens: func(_ string, _ http.Header, body []byte) (out []uint32, err error) {
			if string(body) == "bad" {
				return nil, errors.New("it is bad")
			}
			for _, b := range body {
				out = append(out, uint32(b))
			}
			return out, nil
		}, Now: drive.Since(time.Now()), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s, func(method, path, body string, routing bool) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+s.Addr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if req.Header.Set("x-request-id", "r"); routing {
			req.Header.Set(plugins.HeaderRoutingRequest, "true")
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
}

// TestServer calls every path, with valid and with invalid requests.
func TestServer(t *testing.T) {
	s, ask := start(t)
	const chat, worker = "/v1/chat/completions", `[{"worker_id":7,"role":"decode"}]`
	for _, x := range []struct {
		method, path, body string
		routing            bool
		status             int
		says               string
	}{
		{"POST", chat, "abc", true, 503, "no worker"},
		{"POST", PathWorkers, `[{"worker_id":0}]`, false, 400, "[0]: worker_id"},
		{"POST", PathWorkers, `{`, false, 400, "no list"},
		{"POST", PathWorkers, `[{"worker_id":-1}]`, false, 400, "no list"},
		{"POST", PathWorkers, worker, false, 200, ""},
		{"GET", PathWorkers, "", false, 200, `{"worker_id":7,"role":"decode","active_requests":0,"kv_used_blocks":0}`},
		{"POST", chat, "abc", true, 200, `{"worker_id":7,"token_ids":[97,98,99]}`},
		{"POST", chat, "bad", true, 400, "it is bad"},
		{"POST", chat, strings.Repeat("x", 101), true, 413, "more than 100"},
		{"POST", chat, "abc", false, 404, plugins.HeaderRoutingRequest},
		{"GET", chat, "", true, 405, "expected POST"},
		{"POST", plugins.PathProgress, `[{"request_id":"r"},{"request_id":"nobody's","over":true}]`, false, 200, ""},
		{"POST", plugins.PathProgress, `7`, false, 400, "no list"},
		{"GET", "/health", "", false, 200, "ok"},
	} {
		if status, text := ask(x.method, x.path, x.body, x.routing); status != x.status ||
			!strings.Contains(text, x.says) {
			t.Errorf("%s %s %.20q: %d %s; want %d with %q", x.method, x.path, x.body, status, text, x.status, x.says)
		}
	}
	if s.Running() != 1 {
		t.Errorf("%d requests are booked, want 1", s.Running())
	}
	ask("POST", plugins.PathProgress, `[{"request_id":"r","over":true}]`, false)
	if s.Running() != 0 {
		t.Errorf("%d requests are booked after the end, want 0", s.Running())
	}
}

// Workers are known once Announce returns, and again after the frontend has restarted. Announce fails if nothing
// listens, but a later failure is not an error.
func TestAnnounce(t *testing.T) {
	s, ask := start(t)
	workers := func() []core.Worker { return []core.Worker{{ID: 7, Role: core.Decode, Requests: 2}} }
	a, err := Announce(context.Background(), s.Addr(), 2*time.Millisecond, workers, s.o.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	var got []core.Worker
	if _, text := ask("GET", PathWorkers, "", false); json.Unmarshal([]byte(text), &got) != nil || len(got) != 1 ||
		got[0].Requests != 2 {
		t.Errorf("%s", text)
	}
	if _, err := Announce(context.Background(), "127.0.0.1:1", time.Second, workers, s.o.Log); err == nil {
		t.Error("nobody listens, and it is no error")
	}
}
