package stack

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/scenario"
)

// Document 003's processing mode: the whole request body at once, no response
// body. The picker decides the same; what it would have read from responses
// stays absent, and the bodies are the client's and the server's.
func TestBufferedModeWithThePicker(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) {
		s.Pools[0].Flow, s.Pools[0].EPP.BodyMode, s.Pools[0].Replicas = scenario.Plain, scenario.Buffered, 3
		s.Pools[0].EPP.Config.File, s.Pools[0].EPP.Config.Text = "scored.yaml", []byte(scored)
	}), nil)
	went := map[string]bool{}
	for range 4 {
		a := r.post("/v1/chat/completions", longPrompt("buffered"), picker.HeaderExplain, "true")
		if a.status != 200 || !strings.Contains(a.body, "[DONE]") {
			t.Fatalf("got %d %v %q", a.status, a.err, a.body)
		}
		went[a.head.Get("x-selected-pod")] = true
	}
	if len(went) != 1 || went[""] {
		t.Errorf("one prompt went to %v", went)
	}
	if a := r.post("/v1/chat/completions", `{"model":`); a.status != 400 {
		t.Errorf("a broken body: got %d %q", a.status, a.body)
	}
	resp, err := http.Get("http://" + r.Picker.Server().MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	for name, want := range map[string]bool{"llm_d_epp_request_total{": true,
		"llm_d_epp_scheduler_e2e_duration_seconds_count 4": true,
		"llm_d_epp_response_size_bytes_count":              false, "llm_d_epp_request_output_tokens_count": false,
		"llm_d_epp_request_ttft_seconds_count": false} {
		if strings.Contains(string(page), "\n"+name) != want {
			t.Errorf("%s on the page: %v, want %v", name, !want, want)
		}
	}
	r.idle()
}

// The picker serves whatever modes Envoy asks for. Where the body comes too
// late or not at all it decides without it, as for a request that has none:
// any endpoint, and the bodies pass untouched.
func TestOtherModesWithThePicker(t *testing.T) {
	t.Parallel()
	for _, mode := range []gateway.Body{gateway.BodyUnseen, gateway.BodyStreamed} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := start(t, quick(func(s *scenario.Scenario) {
				s.Pools[0].Flow, s.Pools[0].Replicas = scenario.Plain, 3
				s.Pools[0].EPP.Config.File, s.Pools[0].EPP.Config.Text = "scored.yaml", []byte(scored)
			}), func(o *Options) {
				o.Envoy = func(c *envoy.Config) { c.Pools[0].Picker.Request, c.Pools[0].Picker.Response = mode, mode }
			})
			went := map[string]bool{}
			r.until("several endpoints were chosen", func() bool {
				a := r.post("/v1/chat/completions", longPrompt("unseen"), picker.HeaderExplain, "true")
				if a.status != 200 || !strings.Contains(a.body, "[DONE]") {
					t.Fatalf("got %d %v %q", a.status, a.err, a.body)
				}
				went[a.head.Get("x-selected-pod")] = true
				return len(went) == 3
			})
			if a := r.post("/v1/chat/completions", `{"model":`); a.status != 400 {
				t.Errorf("a broken body is the model server's to refuse: got %d %q", a.status, a.body)
			}
			r.idle()
		})
	}
}
