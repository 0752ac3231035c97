package epp_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// A picker serves requests in the order of their arrival, at most as many at once as it has workers, and each for the
// time that is drawn for it.
func TestService(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		took, err := dist.Parse("1ms..20ms")
		if err != nil {
			t.Fatal(err)
		}
		s := epp.NewService(epp.ServiceConfig{Takes: took, Workers: workers, Seed: 3})
		var fx machine.Effects[epp.Attended]
		free := make([]machine.Time, workers) // when each worker is
		want := map[string]machine.Time{}
		now := machine.Time(0)
		n := rapid.IntRange(1, 30).Draw(t, "requests")
		for i := range n {
			now += machine.Time(rapid.IntRange(0, 8).Draw(t, "gap")) * machine.Millisecond
			r := &epp.Request{Request: &picker.Request{ID: fmt.Sprint(i)}}
			s.Input(now, r, &fx)
			first := 0
			for k := range free {
				if free[k] < free[first] {
					first = k
				}
			}
			d := machine.DrawFor(3, "epp", "service", r.ID)
			free[first] = max(now, free[first]).Add(took.SampleTime(&d))
			want[r.ID] = free[first]
		}
		for at, due := s.Next(); due; at, due = s.Next() {
			s.Advance(at, &fx)
		}
		if len(fx.List) != n {
			t.Fatalf("%d of %d requests were handed in", len(fx.List), n)
		}
		for _, e := range fx.List {
			if e.At != want[e.Request.ID] {
				t.Errorf("request %s is handed in at %v, expected %v", e.Request.ID, e.At, want[e.Request.ID])
			}
		}
	})
}
