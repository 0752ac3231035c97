package wall

import (
	"context"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/chaos"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/scenario"
)

// A seed is played with a real Envoy, keeps all invariants, and leaves nothing behind.
func TestPlay(t *testing.T) {
	v, err := search.ReadVariant(strings.NewReader(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: a
    replicas: 2
    flow: plain
    modelServer: {batching: continuous, prefill: 5ms, interTokenLatency: 2ms, outputTokens: 10}
workload: {requests: 60, rate: 40, timeout: 10s}
`), "-", nil, scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := chaos.NewBase(context.Background(), v, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, leaks, err := Play(context.Background(), Options{Base: b, Seed: 4,
		Start: func(_ context.Context, err error) error { return err }})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if r.Write(&text) != nil || leaks.Write(&text) != nil || len(r.Failures) > 0 || r.Requests != 60 || leaks.End == 0 {
		t.Errorf("%d requests\n%s", r.Requests, &text)
	}
}

// Each count may grow by its margin, and not by more.
func TestGrown(t *testing.T) {
	l := Leaks{Before: Count{10, 10, 10_000}, After: Count{12, 12, 11_000}, Half: 1000, End: 1050}
	if grown := l.grown(); grown != "" {
		t.Error(grown)
	}
	for want, spoil := range map[string]func(*Leaks){
		"goroutines": func(l *Leaks) { l.After.Goroutines = 100 }, "open files": func(l *Leaks) { l.After.Files = 100 },
		"heap": func(l *Leaks) { l.After.HeapKiB = 100_000 }, "series": func(l *Leaks) { l.End = 2000 },
	} {
		x := l
		if spoil(&x); !strings.Contains(x.grown(), want) {
			t.Errorf("%s: %q", want, x.grown())
		}
	}
}
