package gaps

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"github.com/windtunnel/windtunnel/report/stats"
)

// Quantiles of counted gaps are within 0.1 % of those of a list of all gaps, for any gaps and reports.
func TestGapsAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, backwards, all := New(), New(), []float64{}
		type schedule struct {
			s               engine.Schedule
			from, steps, of int
		}
		var list []schedule
		for range rapid.IntRange(1, 30).Draw(t, "runs") {
			x := schedule{s: engine.Schedule{Start: machine.Time(rapid.Int64Range(0, 1e12).Draw(t, "start")),
				Base: engine.Fixed(rapid.Int64Range(1<<16, 1<<44).Draw(t, "base"))},
				from: rapid.IntRange(0, 3).Draw(t, "from"), steps: rapid.IntRange(1, 200).Draw(t, "steps"),
				of: rapid.IntRange(1, 5).Draw(t, "requests")}
			if rapid.Bool().Draw(t, "grows") {
				x.s.Grow = engine.Fixed(rapid.Int64Range(1, 1<<36).Draw(t, "grow"))
			}
			list = append(list, x)
			for k := range x.steps {
				for range x.of {
					all = append(all, float64(x.s.Base+x.s.Grow*engine.Fixed(x.from+k))/(1<<engine.FixedShift))
				}
			}
			// An engine that is read in between reports in two pieces.
			cut := rapid.IntRange(0, x.steps).Draw(t, "cut")
			g.Gaps(&x.s, x.from, cut, x.of)
			g.Gaps(&x.s, x.from+cut, x.steps-cut, x.of)
		}
		for _, x := range slices.Backward(list) {
			backwards.Gaps(&x.s, x.from, x.steps, x.of)
		}
		slices.Sort(all)
		whole := g.Between(0, machine.Never/2)
		if int(whole.Total) != len(all) {
			t.Fatalf("found %d gaps, expected %d", whole.Total, len(all))
		}
		if len(g.windows) > mostWindows {
			t.Fatalf("%d windows, expected at most %d", len(g.windows), mostWindows)
		}
		for _, p := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
			if want, got := stats.Quantile(all, p), whole.Quantile(p)*1e9; math.Abs(got-want) > want*Precision+1 {
				t.Fatalf("the %v-quantile is %v ns, expected %v", p, got, want)
			}
		}
		for i := range 10 {
			from, to := machine.Time(i)*4e11, machine.Time(i+1)*4e11
			a, b := g.Between(from, to), backwards.Between(from, to)
			if d := cmp.Diff(a, b, cmp.AllowUnexported(Counts{})); d != "" && a.Total+b.Total > 0 {
				t.Fatalf("told backwards it differs:\n%s", d)
			}
		}
	})
}

// A gap that is removed again does not count.
func TestGapTakenBack(t *testing.T) {
	g := New()
	s := engine.Schedule{Base: engine.ToFixed(7 * machine.Millisecond)}
	g.Gaps(&s, 0, 10, 2)
	g.Gaps(&engine.Schedule{Start: 63 * machine.Millisecond, Base: engine.ToFixed(machine.Second)}, 0, 1, 1)
	g.Gaps(&s, 9, 1, -2)
	all := g.Between(0, 10*machine.Second)
	if got := all.Quantile(0.9); all.Total != 19 || math.Abs(got-0.007) > 1e-5 {
		t.Errorf("found %d gaps, nine in ten below %v", all.Total, got)
	}
}

func TestBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Uint64Range(0, 1<<62).Draw(t, "ns")
		if from, to := bucket(bucketOf(ns)); ns < from || ns >= to {
			t.Fatalf("%d is in the bucket from %d to %d", ns, from, to)
		}
	})
}
