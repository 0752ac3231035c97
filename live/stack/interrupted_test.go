package stack

import (
	"context"
	"os"
	"testing"

	"github.com/windtunnel/windtunnel/live/envoy"
)

// An interrupted start leaves no directory: its logs are of no use.
func TestInterruptedStartLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if st, err := Start(ctx, Options{Scenario: quick(nil), Envoy: func(*envoy.Config) { cancel() }}); err == nil {
		t.Fatal(st.Stop(t.Context()))
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}
