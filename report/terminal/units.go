package terminal

import (
	"math"
	"strconv"
)

// Span returns a length of time with about four digits, in the unit that suits it: 1.204s, 24.1ms, 812µs.
func Span(seconds float64) string {
	switch {
	case seconds >= 99.95:
		return Thousands(int(math.Round(min(seconds, math.MaxInt32)))) + "s"
	case seconds >= 0.99995:
		return strconv.FormatFloat(seconds, 'f', 3, 64) + "s"
	case seconds >= 0.00099995:
		return strconv.FormatFloat(seconds*1e3, 'f', 1, 64) + "ms"
	case seconds == 0:
		return "0"
	}
	return strconv.FormatFloat(seconds*1e6, 'f', 0, 64) + "µs"
}

// Counted returns a count with its noun: 1 request, 2,000 requests.
func Counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Thousands(n) + " " + noun
}

// Thousands returns a count with commas: 2,000.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
