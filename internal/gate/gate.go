// Package gate checks benchmarks' figures against their limits. A figure beyond its limit fails its benchmark, so
// that `make bench` ends with an error that names the figure, its value and the limit.
//
// A short run (go test -short) only shows that the benchmarks work. It reports figures without checking them, because
// they come from too little work and often from a busy machine.
package gate

import (
	"fmt"
	"testing"
)

// Missed is the beginning of every line about a figure beyond its limit. scripts/bench searches for it.
const Missed = "gate missed"

// Reporter is the used part of testing.B.
type Reporter interface {
	Helper()
	Name() string
	ReportMetric(value float64, unit string)
	Errorf(format string, args ...any)
}

// AtMost reports a figure and fails if it is above limit.
func AtMost(b Reporter, value float64, unit string, limit float64) {
	b.Helper()
	judge(b, value, unit, value <= limit, fmt.Sprintf("at most %.4g", limit))
}

// AtLeast reports a figure and fails if it is below limit.
func AtLeast(b Reporter, value float64, unit string, limit float64) {
	b.Helper()
	judge(b, value, unit, value >= limit, fmt.Sprintf("at least %.4g", limit))
}

func judge(b Reporter, value float64, unit string, kept bool, limit string) {
	b.Helper()
	b.ReportMetric(value, unit)
	if !kept && !testing.Short() { // a NaN misses every limit
		b.Errorf("%s: %s: %s is %.4g; expected %s", Missed, b.Name(), unit, value, limit)
	}
}
