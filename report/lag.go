package report

import (
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Lag counts how long events take from the engine that makes them to the index that gets them. The zero value is
// empty. It is not safe for concurrent use.
type Lag struct{ took latencies }

// Note counts n events that took this long.
func (l *Lag) Note(took time.Duration, n int) { l.took.add(machine.FromDuration(took), n) }

// Write writes the lag into an index's summary. A nil Lag writes nothing.
func (l *Lag) Write(s *IndexSummary) {
	if l == nil {
		return
	}
	if x := l.took.summary(""); x != nil {
		s.Events, s.P50, s.P90, s.P99, s.Max = x.Count, x.P50, x.P90, x.P99, x.Max
	}
}
