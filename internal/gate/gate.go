// Package gate holds benchmarks' figures against the limits that they must
// keep. A figure beyond its limit fails its benchmark, so that `make bench`
// ends with an error and names the figure, its value and the limit.
//
// A short run (go test -short) shows that the benchmarks work: its figures are
// reported and judged by nobody, as they come of too little work and often of a
// busy machine.
package gate

import (
	"fmt"
	"testing"
)

// Missed begins every line about a figure beyond its limit; scripts/bench
// looks for it.
const Missed = "gate missed"

// Reporter is what of a testing.B is used.
type Reporter interface {
	Helper()
	Name() string
	ReportMetric(value float64, unit string)
	Errorf(format string, args ...any)
}

// AtMost reports a figure, which must not be above limit.
func AtMost(b Reporter, value float64, unit string, limit float64) {
	b.Helper()
	judge(b, value, unit, value <= limit, fmt.Sprintf("at most %.4g", limit))
}

// AtLeast reports a figure, which must not be below limit.
func AtLeast(b Reporter, value float64, unit string, limit float64) {
	b.Helper()
	judge(b, value, unit, value >= limit, fmt.Sprintf("at least %.4g", limit))
}

func judge(b Reporter, value float64, unit string, kept bool, limit string) {
	b.Helper()
	b.ReportMetric(value, unit)
	if !kept && !testing.Short() { // what is no number keeps no limit
		b.Errorf("%s: %s: %s is %.4g, and has to be %s", Missed, b.Name(), unit, value, limit)
	}
}
