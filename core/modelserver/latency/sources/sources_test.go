package sources

import (
	"math"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Each table that comes with windtunnel equals its own points, and its distance from each other source names the worst
// point.
func TestDistances(t *testing.T) {
	for _, m := range latency.Builtin() {
		d, err := DistanceOf(&m)
		if err != nil {
			t.Fatal(err)
		}
		if d.Given.Most > 0.02 || d.Points != 81 || d.Peak < 1 {
			t.Errorf("%s on %s: %+v", m.Model, m.System, d)
		}
		want := 2
		if m.System == "h200_sxm" {
			want = 1 // inference-sim knows nothing of it
		}
		if len(d.Others) != want || d.Others[0].Source != "roofline" {
			t.Fatalf("%s on %s: the other sources are %+v", m.Model, m.System, d.Others)
		}
		for _, x := range d.Others {
			for _, off := range []Off{x.TTFT, x.TPOT} {
				if off.Worst == "" || off.Most < off.Median || off.Median < math.Abs(off.Moves)-1e-9 && off.Moves < 0 &&
					off.Most < -off.Moves {
					t.Errorf("%s on %s, %s: %+v", m.Model, m.System, x.Source, off)
				}
			}
		}
	}
}

// A range goes from the fastest source to the slowest, seen from the one that is used, and each
// of the sources sees the others where they are.
func TestRanges(t *testing.T) {
	h, err := hardware.Names{Model: "Llama-3.1-8B", Accelerator: "H100"}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	all := Of(h)
	if len(all) != 3 {
		t.Fatalf("%d sources", len(all))
	}
	step := hardware.PrefillStep(8192)
	for _, used := range all {
		r, ok := RangeOf(used.Timer, all, step)
		low, high := math.Inf(1), 0.0
		for _, x := range all {
			took := float64(x.Timer.StepTime(step))
			low, high = min(low, took), max(high, took)
		}
		mine := float64(used.Timer.StepTime(step))
		if !ok || math.Abs(r.Low-(low/mine-1)) > 1e-6 || math.Abs(r.High-(high/mine-1)) > 1e-6 ||
			(r.Fastest == "") != (mine == low) || (r.Slowest == "") != (mine == high) {
			t.Errorf("%s: %+v of %v to %v around %v", used.Name, r, low, high, mine)
		}
		if NameOf(used.Timer, all) != used.Name {
			t.Errorf("%s is called %s", used.Name, NameOf(used.Timer, all))
		}
	}
	if r, _ := RangeOf(all[0].Timer, all, step); r.Slowest != "inference-sim" || r.High < 0.4 {
		t.Errorf("with 45 %% of the peak a prompt takes %+v", r)
	}
}
