package stack

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/scenario"
)

// Header values that are no UTF-8 come through Envoy as they are: the request
// is answered, and nothing of it is left anywhere.
func TestHeadersThatAreNoUTF8(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) {
		s.Pools[0].EPP.Config.File, s.Pools[0].EPP.Config.Text = "scored.yaml", []byte(scored)
	}), nil)
	for _, name := range append(picker.HeadersFairness[:], picker.HeadersObjective[:]...) {
		if a := r.post("/v1/chat/completions", chat, name, "\xff"); a.status != 200 || a.err != nil {
			t.Errorf("%s: got %d %v %q", name, a.status, a.err, a.body)
		}
	}
	r.idle()
}
