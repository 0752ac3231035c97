package report

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// TransferSummary reports on the KV caches that decode servers fetched, from other servers or from a store. Times are
// seconds, from the server's request for a cache until the cache can be used.
type TransferSummary struct {
	Count int `json:"count"`
	// Bytes are those on the wire.
	Bytes int64   `json:"bytes"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// transferTally counts the caches that model servers fetched.
type transferTally struct {
	bytes int64
	took  latencies
}

// record counts the cache that a server fetched for a prompt.
func (t *transferTally) record(e *record.Event) {
	if e.Hop != record.Server || e.Step != record.PrefillStarted {
		return
	}
	if n, ok := whole(e.Details.Get("fetched_bytes")); ok {
		us, _ := whole(e.Details.Get("fetched_us"))
		t.bytes += int64(n)
		t.took.add(machine.Time(us)*machine.Microsecond, 1)
	}
}

// summary returns nil where nothing was fetched.
func (t *transferTally) summary() *TransferSummary {
	s := t.took.summary("")
	if s == nil {
		return nil
	}
	return &TransferSummary{Count: s.Count, Bytes: t.bytes, P50: s.P50, P90: s.P90, P99: s.P99, Max: s.Max}
}

func (s *TransferSummary) write(l *lines) {
	if s != nil {
		l.add("kv moved", fmt.Sprintf("%s of %s in all, each in p50 %s, p90 %s, p99 %s, max %s",
			terminal.Counted(s.Count, "transfer"), bytesText(s.Bytes), terminal.Span(s.P50), terminal.Span(s.P90),
			terminal.Span(s.P99), terminal.Span(s.Max)))
	}
}

// bytesText returns a number of bytes as people read it.
func bytesText(n int64) string {
	v, units := float64(n), []string{"B", "kB", "MB", "GB", "TB", "PB"}
	for len(units) > 1 && v >= 999.5 {
		v, units = v/1000, units[1:]
	}
	return fmt.Sprintf("%.3g %s", v, units[0])
}
