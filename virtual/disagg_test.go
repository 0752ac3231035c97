package virtual

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// Prefill and decode apart, with the same steps as live; the same seed gives
// the same run.
func TestDisaggregated(t *testing.T) {
	s, err := scenario.Load("../examples/pd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	events := recorded(t, s)
	if err := record.CheckEdges(events, record.DisaggregatedEdges()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"completed": 40}, outcomes(events)); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff(events, recorded(t, s)); d != "" {
		t.Fatal("the same seed gives another run: " + d)
	}
}
