package gc

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// The heap of an endpoint picker ends at about half of that of other processes that serve, which
// is what a picker that keeps little takes from its machine.
func TestGoals(t *testing.T) {
	t.Setenv("GOGC", "") // as users leave it
	goal := func(set func()) uint64 {
		set()
		runtime.GC()
		runtime.GC() // the floor of the one before is gone
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64() >> 20
	}
	defer Serve()
	if g := goal(Serve); g < 80 || g > 120 {
		t.Errorf("a process that serves collects at %d MiB, expected 80 to 120", g)
	}
	if g := goal(Pick); g < 2*20 || g > 2*(20+8) {
		t.Errorf("a picker collects at %d MiB, expected 40 to 56", g)
	}
}
