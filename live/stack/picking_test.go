package stack

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/scenario"
)

const scored = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: kv-cache-utilization-scorer
    weight: 2
  - pluginRef: prefix-cache-scorer
    weight: 3
`

// A pool with an EndpointPickerConfig, held: the second request with the same
// long prompt goes to the server of the first, and the metrics show it.
func TestPickerConfig(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) {
		s.Pools[0].Replicas = 4
		s.Pools[0].EPP.Config.File, s.Pools[0].EPP.Config.Text = "scored.yaml", []byte(scored)
	}), nil)
	prompt := `{"model":"m","stream":true,"messages":[{"role":"user","content":"` +
		strings.Repeat("the same words ", 100) + `"}]}`
	for range 4 {
		if a := r.post("/v1/chat/completions", prompt); a.status != 200 || !strings.Contains(a.body, `"metadata"`) {
			t.Fatalf("got %d %v %q", a.status, a.err, a.body)
		}
	}
	picked := map[string]int{}
	for _, e := range r.rec.all() {
		if e.Step == record.EndpointPicked {
			picked[e.Endpoint]++
		}
	}
	if len(picked) != 1 {
		t.Fatalf("one prompt went to several endpoints: %v", picked)
	}
	resp, err := http.Get("http://" + r.Picker.Server().MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(page), `llm_d_epp_request_total{`) {
		t.Fatalf("%v: no request counted in %s", err, page)
	}
	http.DefaultClient.CloseIdleConnections()
	r.idle()
}

// A configuration that the picker does not take stops the start, by name.
func TestBadPickerConfig(t *testing.T) {
	t.Parallel()
	s := quick(func(s *scenario.Scenario) {
		s.Pools[0].EPP.Config.File, s.Pools[0].EPP.Config.Text = "bad.yaml",
			[]byte("plugins:\n- type: no-such-plugin\n")
	})
	_, err := Start(context.Background(), Options{Scenario: s, Dir: t.TempDir()})
	var bad *epp.ConfigError
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), "bad.yaml") ||
		!strings.Contains(err.Error(), "no-such-plugin") {
		t.Fatalf("got %v", err)
	}
}
