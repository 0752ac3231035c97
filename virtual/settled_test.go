package virtual

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
)

// Every run ends with a look at what must hold of requests, tokens and blocks. It sees what is
// missing, or there twice.
func TestConservationIsAlwaysOn(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, want string
		spoil      func(*world, *server)
	}{
		{"nothing is wrong", "", func(*world, *server) {}},
		{"a request that did not end", "20 requests were sent and 19 ended", func(w *world, _ *server) { w.done-- }},
		{"a request that ended twice", "20 requests were sent and 21 ended", func(w *world, _ *server) { w.done++ }},
		{"a conversation in flight", "1 conversations have not ended", func(w *world, _ *server) {
			w.loop = workload.NewLoop(w.load, 1)
			w.loop.Arrived(nil)
		}},
		{"a token that nobody made", "ended", func(_ *world, sv *server) { sv.made++ }},
		{"a request that an engine lost", "ended", func(_ *world, sv *server) { sv.ends-- }},
		{"blocks that are kept for nobody", "still has 0 requests and 4 KV blocks", func(w *world, sv *server) {
			var fx engine.Effects
			sv.engine.Input(w.now, &engine.Submit{ID: 1 << 40, PromptTokens: 64, MaxTokens: 1, HoldKV: true}, &fx)
			for sv.engine.Stats().Running+sv.engine.Stats().Waiting > 0 {
				at, _ := sv.engine.Next()
				sv.engine.Advance(at, &fx)
			}
		}},
		{"a request that a server still serves", "still has 1 requests",
			func(_ *world, sv *server) { sv.calls = map[enginecore.Call]peer{1: {}} }},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := batching(t, scored)
			s.Workload.Requests = 20
			w, err := newWorld(s, nil, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.run(nil); err != nil {
				t.Fatal(err)
			}
			x.spoil(w, w.pools[0].servers[0])
			switch err := w.settled(); {
			case x.want == "" && err != nil, x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
				t.Errorf("%v, expected %q", err, x.want)
			}
		})
	}
}
