package stack

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/scenario"
)

// Everything that clients ask of a pool is answered through Envoy and its picker,
// also what the picker does not look into.
func TestEveryPathThroughEnvoy(t *testing.T) {
	t.Parallel()
	const messages = `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`
	asked := []struct {
		path, body string
		found      string // in the answer
	}{
		{"/v1/chat/completions", messages, `"chat.completion"`},
		{"/v1/completions", `{"model":"m","max_tokens":2,"prompt":"hi"}`, `"text_completion"`},
		{"/v1/messages", messages, `"type":"message"`},
		{"/v1/messages/count_tokens", messages, `"input_tokens":`},
		{"/v1/responses", `{"model":"m","max_output_tokens":2,"input":"hi","metadata":{"a":"b"}}`,
			`"metadata":{"a":"b"}`},
		{"/v1/embeddings", `{"model":"m","input":"hi"}`, `"embedding"`},
		{"/v1/models", "", `"object":"model"`},
	}
	for name, s := range map[string]*scenario.Scenario{
		"held":  quick(nil),
		"plain": quick(func(s *scenario.Scenario) { s.Pools[0].Flow = scenario.Plain }),
		"sidecars": quick(func(s *scenario.Scenario) {
			s.Pools[0].Flow, s.Pools[0].Sidecar = scenario.Plain, scenario.RoutingSidecar
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, s, nil)
			for _, c := range asked {
				method := http.MethodPost
				if c.body == "" {
					method = http.MethodGet
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				a := do(r.request(ctx, method, c.path, c.body))
				cancel()
				if a.status != 200 || !strings.Contains(a.body, c.found) {
					t.Errorf("%s: %+v", c.path, a)
				}
			}
		})
	}
}
