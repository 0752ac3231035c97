package soak

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/scenario"
)

// scenarios are two stacks that together have every part: document 000's held requests, and a picker with flow
// control, a scheduler and a KV index before sidecars, prefill and decode servers and the KV-Cache Manager.
var scenarios = []string{`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: held
    model: m
    flow: held
    replicas: 2
    modelServer: {batching: independent, prefill: 1ms..5ms, interTokenLatency: 1ms, outputTokens: 1..8}
    epp: {bodyIdleTimeout: 2s, bodyTimeout: 5s}
`, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: apart
    model: m
    replicas: 2
    sidecar: routing
    kvManager: true
    disaggregation: {prefillReplicas: 1, connector: nixlv2}
    modelServer:
      batching: continuous
      prefill: 2ms
      interTokenLatency: 1ms
      outputTokens: 1..16
      kvEvents: {format: json, interval: 1ms}
    epp: {bodyIdleTimeout: 2s, bodyTimeout: 5s}
`}

// rig is a running stack.
type rig struct {
	*stack.Stack
	*stack.Pool // the first pool
	client      *http.Client
	ports       []listener
}

// patience bounds every wait for an expected event.
const patience = 30 * time.Second

func start(tb testing.TB, text string) *rig {
	tb.Helper()
	s, err := scenario.Parse("soak.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := stack.Start(ctx, stack.Options{Scenario: s, Recorder: &counting{}, Dir: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	r := &rig{Stack: st, Pool: st.Pools[0],
		client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		ports:  listeners(st)}
	tb.Cleanup(func() {
		r.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := st.Stop(ctx); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// counting is a recorder that only counts events.
type counting struct {
	mu sync.Mutex
	n  int
}

func (c *counting) Record(record.Event) { c.mu.Lock(); c.n++; c.mu.Unlock() }

// ask sends an ordinary request and returns what is wrong with the answer, or "".
func (r *rig) ask(body string, head ...string) string {
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Gateway.Addr+"/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	whole := strings.Contains(string(text), "[DONE]") || strings.Contains(string(text), `"usage"`)
	switch {
	case err != nil:
		return err.Error()
	case resp.StatusCode != 200 || !whole:
		return resp.Status + " " + string(text)
	}
	return ""
}

// idle waits until nothing is in flight in any part.
func (r *rig) idle(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		active, err := r.Gateway.Active(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		busy := 0
		for _, s := range r.Fleet.Servers() {
			busy += s.InFlight()
		}
		if active.Idle() && r.Pickers[0].Server().Active() == 0 && busy == 0 {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("still in flight: Envoy %+v, streams at the picker %d, requests at the model servers %d", active,
				r.Pickers[0].Server().Active(), busy)
		case <-time.After(time.Millisecond):
		}
	}
}
