package stack

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/scenario"
)

func retryTwice(c *envoy.Config) {
	c.Pools[0].Retry = &gateway.Attempts{Retries: 2, Codes: []int{503},
		On:   []string{"connect-failure", "refused-stream", "reset", "retriable-status-codes"},
		Base: time.Millisecond, Max: 10 * time.Millisecond}
}

func TestEPPDownFailClose(t *testing.T) {
	t.Parallel()
	r := start(t, quick(nil), nil)
	r.healthy()
	r.Picker.Server().Kill()
	if a := r.post("/v1/chat/completions", chat); a.status != 503 {
		t.Fatalf("got %d %v %q", a.status, a.err, a.body)
	}
	r.idle()
}

// With FailOpen requests are served plainly once Envoy has seen that the EPP
// is down; until then each gets one 503.
func TestEPPDownFailOpen(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) { s.Pools[0].FailureMode = scenario.FailOpen }), nil)
	r.healthy()
	r.Picker.Server().Kill()
	var last answer
	r.until("served without the EPP", func() bool {
		last = r.post("/v1/chat/completions", chat)
		if last.status != 200 && last.status != 503 {
			t.Fatalf("got %d %q", last.status, last.body)
		}
		return last.status == 200
	})
	if !strings.Contains(last.body, "[DONE]") || strings.Contains(last.body, `"metadata"`) {
		t.Fatalf("not a plain answer: %q", last.body)
	}
	if r.rec.count(record.Server, record.RequestReceived) == 0 {
		t.Fatal("the record does not show that it was served plainly")
	}
	r.idle()
}

// A picker that thinks for too long.
func TestEPPSlow(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or net/http would not see the picker leave
		<-r.Context().Done()
		close(released)
	}))
	t.Cleanup(silent.Close)
	r := start(t, quick(func(s *scenario.Scenario) {
		p := &s.Pools[0]
		p.EPP.Deadline = 3 * time.Second
		p.EPP.Config = scenario.PickerConfig{File: "epp.yaml",
			Text: []byte("plugins: [{type: token-producer, parameters: {modelName: m, vllm: {url: '" + silent.URL +
				"'}}}]")}
	}), nil)
	if a := r.post("/v1/chat/completions", chat); a.status != 504 || !strings.Contains(a.body, "3s") {
		t.Fatalf("got %d %v %q", a.status, a.err, a.body)
	}
	<-released
	r.idle()
}

// A plug-in that panics fails its own request only, and is named.
func TestEPPPanics(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) {
		s.Pools[0].EPP.Config = scenario.PickerConfig{File: "epp.yaml", Text: []byte("plugins: [{type: my-scorer}]")}
	}), func(o *Options) {
		o.Plugins = plugins.Builtin()
		o.Plugins["my-scorer"] = picker.Registration{
			New: func(_ *picker.Builder, name string, _ picker.Params) (picker.Plugin, error) {
				return &panicking{}, nil
			}}
	})
	if a := r.post("/v1/chat/completions", chat); a.status != 500 || !strings.Contains(a.body, "my-scorer") {
		t.Fatalf("got %d %v %q", a.status, a.err, a.body)
	}
	r.idle()
}

// panicking is a scorer with a mistake.
type panicking struct{ picker.Base }

// Score makes it.
func (*panicking) Score(_ *picker.Cycle, in []int32, scores []float64) { scores[len(in)] = 1 }

func slowPrefill(s *scenario.Scenario) {
	s.Pools[0].ModelServer.Prefill = dist.Fixed(300 * machine.Millisecond)
}

// The EPP dies while requests are held: the client gets an error and no hang,
// and the model servers give up the held requests.
func TestEPPDiesWhileHolding(t *testing.T) {
	t.Parallel()
	for _, mode := range []scenario.FailureMode{scenario.FailClose, scenario.FailOpen} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			const n = 5
			r := start(t, quick(func(s *scenario.Scenario) {
				s.Pools[0].FailureMode = mode
				s.Pools[0].ModelServer.Prefill = dist.Fixed(60 * machine.Second) // held until the EPP dies
			}), nil)
			answers := make(chan answer, n)
			for range n {
				go func() { answers <- r.post("/v1/chat/completions", chat) }()
			}
			r.until("all are held", func() bool { return r.rec.count(record.Server, record.PrefillStarted) == n })
			r.Picker.Server().Kill()
			for range n {
				if a := <-answers; a.status < 500 && a.err == nil {
					t.Errorf("got %d %q", a.status, a.body)
				}
			}
			r.idle()
			if got := r.rec.count(record.Server, record.Aborted) +
				r.rec.count(record.Server, record.Violation); got != n {
				t.Errorf("%d of %d requests were given up by the model servers", got, n)
			}
		})
	}
}

// Told to stop, the EPP loses nothing: what is held finishes, then it exits.
func TestEPPStopsGracefully(t *testing.T) {
	t.Parallel()
	const n = 5
	r := start(t, quick(slowPrefill), nil)
	answers := make(chan answer, n)
	for range n {
		go func() { answers <- r.post("/v1/chat/completions", chat) }()
	}
	r.until("all are held", func() bool { return r.rec.count(record.Server, record.PrefillStarted) == n })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Picker.Server().Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for range n {
		if a := <-answers; a.status != 200 || !strings.Contains(a.body, "[DONE]") {
			t.Errorf("got %d %v %q", a.status, a.err, a.body)
		}
	}
	r.idle()
}

// A stop has a bound: what is still held then is cut, not waited for.
func TestEPPStopIsBounded(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) {
		s.Pools[0].ModelServer.Prefill = dist.Fixed(100 * machine.Second)
	}), nil)
	got := make(chan answer, 1)
	go func() { got <- r.post("/v1/chat/completions", chat) }()
	r.until("it is held", func() bool { return r.rec.count(record.Server, record.PrefillStarted) == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Picker.Server().Stop(ctx); err == nil || !strings.Contains(err.Error(), "1 requests were still held") {
		t.Fatalf("got %v", err)
	}
	if a := <-got; a.status < 500 && a.err == nil {
		t.Fatalf("got %d %q", a.status, a.body)
	}
	r.idle()
}
