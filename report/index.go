package report

import (
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// IndexSummary compares an index of KV blocks after a run with the blocks that the engines have, and reports how long
// events took to reach the index.
type IndexSummary struct {
	// Index is the name of the plug-in with the index, or kv-cache-manager.
	Index string `json:"index"`
	// Pods and Blocks (pairs of block and pod) are the engines' own counts.
	Pods   int `json:"pods"`
	Blocks int `json:"blocks"`
	// Missing pairs are in the engines and not in the index. Extra pairs are in the index and not in the engines. Both
	// are 0 where the index is the union of the engines' blocks.
	Missing int `json:"missing"`
	Extra   int `json:"extra"`
	// Excuse says why such pairs are no error: the configuration does not let the index hold more.
	Excuse string `json:"excuse,omitempty"`
	// Events were measured, from the time an engine makes one until look-ups see it. The times are in seconds.
	Events int     `json:"events"`
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// Compared returns the summary of a comparison, with its excuse and its lag.
func Compared(index string, c kvindex.Comparison, excuse string, lag *Lag) IndexSummary {
	s := IndexSummary{Index: index, Pods: c.Pods, Blocks: c.Blocks, Missing: c.Missing, Extra: c.Extra, Excuse: excuse}
	if lag != nil {
		if x := lag.took.summary(""); x != nil {
			s.Events, s.P50, s.P90, s.P99, s.Max = x.Count, x.P50, x.P90, x.P99, x.Max
		}
	}
	return s
}

// Lag counts how long events take from the engine that makes them to the index that gets them. The zero value is
// empty. It is not safe for concurrent use.
type Lag struct{ took latencies }

// Note counts n events that took this long.
func (l *Lag) Note(took time.Duration, n int) { l.took.add(machine.FromDuration(took), n) }

// ManagerIndex is the name of the index of document 003's KV-Cache Manager.
const ManagerIndex = "kv-cache-manager"

// IndexName returns the name of an index, with its picker where there are several.
func IndexName(index, picker string) string {
	if picker == "" {
		return index
	}
	return index + " of " + picker
}

// OK reports whether the index has the engines' blocks, or an excuse.
func (x IndexSummary) OK() bool { return x.Missing+x.Extra == 0 || x.Excuse != "" }

// Verdict returns the result of the comparison in words.
func (x IndexSummary) Verdict() string {
	if x.Missing+x.Extra == 0 {
		return "the union of the engines' blocks"
	}
	s := fmt.Sprintf("NOT the union of the engines' blocks: %s missing, %s too many", terminal.Thousands(x.Missing),
		terminal.Thousands(x.Extra))
	if x.Excuse != "" {
		s += " (" + x.Excuse + ")"
	}
	return s
}

func (x IndexSummary) write(l *lines) {
	verdict := x.Verdict()
	if !x.OK() {
		verdict = l.paint.Red(verdict)
	}
	l.add("kv index", fmt.Sprintf("%s: %s on %s, %s", x.Index, terminal.Counted(x.Blocks, "block"),
		terminal.Counted(x.Pods, "pod"),
		verdict))
	if x.Events > 0 {
		l.add("  lag", fmt.Sprintf("%s from made to indexed: p50 %s, p90 %s, p99 %s, max %s",
			terminal.Counted(x.Events, "event"), terminal.Span(x.P50), terminal.Span(x.P90), terminal.Span(x.P99),
			terminal.Span(x.Max)))
	}
}

// SetIndexes sets the index comparisons of the summary. Call it before End.
func (s *Session) SetIndexes(list []IndexSummary) { s.options.restored.IndexLag = list }

// Wrong counts the indexes that are not OK.
func (s Summary) Wrong() int { return count(s.IndexLag, func(x *IndexSummary) bool { return !x.OK() }) }
