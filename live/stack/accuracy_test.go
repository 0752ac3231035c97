package stack

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// Servers that batch, live and in virtual time: the same steps of every
// request. How close the times are depends on the machine, so they are only
// printed (-v); on an idle one they differ by what sockets and Envoy take.
func TestBatchingLiveAsVirtual(t *testing.T) {
	t.Parallel()
	s, err := scenario.Load("../../experiments/two-servers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	events := r.load()
	wantCompleted(t, events, 80)
	var played []record.Event
	if err := virtual.Run(s, record.Func(func(e record.Event) { played = append(played, e) }), nil); err != nil {
		t.Fatal(err)
	}
	if err := record.Same(events, played, record.Envoy); err != nil {
		t.Fatal(err)
	}
	live, sim := report.NewTally(), report.NewTally()
	for _, e := range events {
		live.Record(e)
	}
	for _, e := range played {
		sim.Record(e)
	}
	l, v := live.Summary().Spans, sim.Summary().Spans
	for i := range l {
		for j := range v {
			if l[i].Name == v[j].Name {
				t.Logf("%-8s live %+v", l[i].Name, l[i])
				t.Logf("%-8s sim  %+v", v[j].Name, v[j])
			}
		}
	}
}
