package gc

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// An endpoint picker's heap ends at about half the size of other serving processes' heaps, because it keeps little.
func TestGoals(t *testing.T) {
	t.Setenv("GOGC", "") // as by default
	goal := func(set func()) uint64 {
		set()
		runtime.GC()
		runtime.GC() // frees the previous floor
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
