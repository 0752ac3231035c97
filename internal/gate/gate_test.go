package gate

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

type recorder struct{ said []string }

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return "BenchmarkB" }
func (r *recorder) ReportMetric(v float64, unit string) {
	r.said = append(r.said, fmt.Sprintf("%v %s", v, unit))
}
func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func TestGates(t *testing.T) {
	if testing.Short() {
		t.Skip("gates are not checked in a short run")
	}
	for _, c := range []struct {
		value float64
		judge func(Reporter, float64, string, float64)
		want  string
	}{
		{1.5, AtMost, "1.5 x"},
		{1.6, AtMost, "1.6 x; gate missed: BenchmarkB: x is 1.6; expected at most 1.5"},
		{1.5, AtLeast, "1.5 x"},
		{1.4, AtLeast, "1.4 x; gate missed: BenchmarkB: x is 1.4; expected at least 1.5"},
		{math.NaN(), AtMost, "NaN x; gate missed: BenchmarkB: x is NaN; expected at most 1.5"},
		{math.NaN(), AtLeast, "NaN x; gate missed: BenchmarkB: x is NaN; expected at least 1.5"},
	} {
		var r recorder
		c.judge(&r, c.value, "x", 1.5)
		if got := strings.Join(r.said, "; "); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
