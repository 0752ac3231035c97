package engine

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Steps that begin after OpPace take as much longer as it says, and no others.
func TestPace(t *testing.T) {
	for _, c := range []struct{ percent, want int64 }{{200, 2}, {100, 1}, {50, 0}} {
		e := &Engine{pace: Fixed(c.percent)}
		f := ToFixed(10*machine.Millisecond) + 12345
		if got, want := e.paced(f), f*Fixed(c.percent)/100; got != want {
			t.Errorf("%d%% of %d is %d; expected %d", c.percent, f, got, want)
		}
	}
	if e := (&Engine{}); e.paced(77) != 77 {
		t.Error("an engine that nobody slowed down is not as its timer says")
	}
}
