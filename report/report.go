// Package report turns the one stream of flow events into what people and
// programs read: lines on a terminal as things happen, a recording of one JSON
// object per line that can be replayed, and a summary with outcomes, counts
// and percentiles.
//
// Everything here is a reader. A live run, a run in virtual time and the
// replay of a file feed the same readers the same events, so what is printed
// about them can be compared line by line. Session puts the readers together
// the way that `windtunnel run`, `sim` and `replay` want them.
package report

import (
	"math"
	"strconv"
	"time"
)

// span prints a span of time with about four digits, in the unit that suits
// it: 1.204s, 24.1ms, 812µs.
func span(seconds float64) string {
	switch {
	case seconds >= 99.95:
		return thousands(int(math.Round(min(seconds, math.MaxInt32)))) + "s"
	case seconds >= 0.99995:
		return strconv.FormatFloat(seconds, 'f', 3, 64) + "s"
	case seconds >= 0.00099995:
		return strconv.FormatFloat(seconds*1e3, 'f', 1, 64) + "ms"
	case seconds == 0:
		return "0"
	}
	return strconv.FormatFloat(seconds*1e6, 'f', 0, 64) + "µs"
}

// thousands prints a count with commas: 2,000.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// orderWindow is how long a live event waits for earlier ones that other
// goroutines are about to report.
const orderWindow = 20 * time.Millisecond
