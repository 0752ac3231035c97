package stack

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/scenario"
)

// replicated is a stack whose gateway asks several standalone pickers.
type replicated struct {
	*rig
	mu      sync.Mutex
	pickers []*epp.Standalone
	config  []byte
}

func startReplicated(t *testing.T, n int, hold stream.Config, s *scenario.Scenario) *replicated {
	t.Helper()
	dir := t.TempDir()
	r := &replicated{}
	r.rig = start(t, s, func(o *Options) {
		o.Envoy = func(c *envoy.Config) {
			file := "endpoints:\n"
			for i, e := range c.Pools[0].Endpoints {
				host, port, _ := strings.Cut(e, ":")
				file += fmt.Sprintf("- {name: pod-%d, address: %s, port: %q}\n", i, host, port)
			}
			path := filepath.Join(dir, "endpoints.yaml")
			if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			r.config = []byte(strings.Replace(scored, "plugins:\n",
				"plugins:\n- {name: files, type: file-discovery, parameters: {path: "+path+"}}\n", 1) +
				"dataLayer: {discovery: {pluginRef: files}}\n")
			c.Pools[0].Picker.Addresses = nil
			for range n {
				p := r.startPicker(t, fmt.Sprint("127.0.0.1:", freeport.Row(t, 1)), hold)
				c.Pools[0].Picker.Addresses = append(c.Pools[0].Picker.Addresses, p.Addr())
			}
		}
	})
	return r
}

func (r *replicated) startPicker(t *testing.T, address string, hold stream.Config) *epp.Standalone {
	t.Helper()
	hold.MaxBodyBytes = 1 << 20
	p, err := epp.StartStandalone(
		epp.StandaloneOptions{PickerOptions: epp.PickerOptions{Config: r.config, ConfigName: "epp.yaml", History: 100,
			Log: slog.New(slog.DiscardHandler)}, PoolOptions: epp.PoolOptions{PoolName: "pool"},
			Serving: epp.Serving{Address: address, MetricsAddress: "127.0.0.1:0"}, Picking: picking(hold)})
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.pickers = append(r.pickers, p)
	r.mu.Unlock()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = p.Stop(ctx) // it may have been stopped by the test
	})
	return p
}

func longPrompt(word string) string {
	return `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat(word+" ", 200) + `"}]}`
}

func served(p *epp.Standalone) int { return len(p.Picking().Decisions("", 1000)) }

// Several pickers over one pool, each with its own approximate state (document
// 001): whichever Envoy asks serves the request; one that has not seen a
// prompt before is slower with it, never wrong.
func TestReplicasOfThePicker(t *testing.T) {
	t.Parallel()
	r := startReplicated(t, 2, stream.Config{},
		quick(func(s *scenario.Scenario) { s.Pools[0].Flow = scenario.Plain; s.Pools[0].Replicas = 3 }))
	r.until("both pickers have decided", func() bool {
		if a := r.post("/v1/chat/completions", longPrompt("shared"), picker.HeaderExplain, "true"); a.status != 200 ||
			a.head.Get("x-selected-pod") == "" {
			t.Fatalf("got %d %v %q", a.status, a.err, a.body)
		}
		return served(r.pickers[0]) > 1 && served(r.pickers[1]) > 1
	})
	for i, p := range r.pickers {
		list := p.Picking().Decisions("", 1000)
		first, last := list[len(list)-1], list[0]
		prefix := func(e *picker.Explanation) (best float64) {
			for _, row := range e.Profiles[0].Endpoints {
				best = max(best, row.Raw[slices.IndexFunc(e.Profiles[0].Scorers,
					func(s picker.ExplainedScorer) bool { return s.Name == "prefix-cache-scorer" })])
			}
			return best
		}
		if prefix(first) != 0 || prefix(last) != 1 || first.Destination == "" {
			t.Errorf("picker %d: its first sight of the prompt scores %v, its last %v; want 0 and 1", i, prefix(first),
				prefix(last))
		}
	}
	r.idle()
}

// A picker that restarts gracefully under load loses nothing: it says that it
// is not ready, serves until Envoy has noticed, lets its streams finish, and
// comes back on the same address.
func TestRestartOfThePickerLosesNothing(t *testing.T) {
	t.Parallel()
	for _, flow := range []scenario.Flow{scenario.Plain, scenario.Held} {
		t.Run(string(flow), func(t *testing.T) {
			t.Parallel()
			hold := stream.Config{Hold: flow == scenario.Held, Seed: 1}
			r := startReplicated(t, 2, hold, quick(func(s *scenario.Scenario) { s.Pools[0].Flow = flow }))
			var sent, lost atomic.Int64
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					tr := &http.Transport{}
					defer tr.CloseIdleConnections()
					for {
						select {
						case <-stop:
							return
						default:
						}
						ctx, cancel := context.WithTimeout(context.Background(), patience)
						resp, err := tr.RoundTrip(r.request(ctx, http.MethodPost, "/v1/chat/completions", chat))
						var body []byte
						if err == nil {
							body, err = io.ReadAll(resp.Body)
							resp.Body.Close()
						}
						cancel()
						time.Sleep(10 * time.Millisecond) // leaves the machine to the pickers and to other tests
						sent.Add(1)
						if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), "[DONE]") {
							lost.Add(1)
							t.Errorf("lost: %v %v %.200s", err, resp, body)
						}
					}
				})
			}
			pass := func(n int64) {
				want := sent.Load() + n
				r.until("requests pass", func() bool { return sent.Load() >= want || lost.Load() > 0 })
			}
			for i := range 2 {
				pass(40)
				p := r.pickers[i]
				address := p.Addr()
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				if err := p.Stop(ctx); err != nil {
					t.Error(err)
				}
				cancel()
				pass(40)
				back := r.startPicker(t, address, hold)
				r.until("it is asked again", func() bool { return served(back) > 0 || lost.Load() > 0 })
			}
			close(stop)
			wg.Wait()
			t.Logf("%d requests, %d lost", sent.Load(), lost.Load())
		})
	}
}
