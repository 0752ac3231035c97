package report

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Lag is how long events take from the moment at which an engine makes them to the one at which an
// index has them. The zero value has none. It is not safe for concurrent use.
type Lag struct {
	hist *hdrhistogram.Histogram // of microseconds
	max  time.Duration
}

// longestLag bounds what is measured; longer ones count as this long.
const longestLag = time.Hour

// Note counts n events that took this long.
func (l *Lag) Note(took time.Duration, n int) {
	if l.hist == nil {
		l.hist = hdrhistogram.New(1, longestLag.Microseconds(), 3)
	}
	l.max = max(l.max, took)
	// The value is inside the histogram's bounds, the only error there is.
	_ = l.hist.RecordValues(min(took, longestLag).Microseconds(), int64(n))
}

// Write writes the lag into an index's summary; nil has none.
func (l *Lag) Write(s *IndexSummary) {
	if l == nil || l.hist == nil {
		return
	}
	at := func(q float64) float64 { return min(float64(l.hist.ValueAtQuantile(q))/1e6, l.max.Seconds()) }
	s.Events, s.P50, s.P90, s.P99, s.Max = int(l.hist.TotalCount()), at(50), at(90), at(99), l.max.Seconds()
}
