package report

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// IndexSummary is one index of KV blocks after a run: held against the blocks
// that the engines truly have, and how long their events took to reach it.
type IndexSummary struct {
	// Index is the plug-in whose index it is, or kv-cache-manager.
	Index string `json:"index"`
	// Pods and Blocks (pairs of block and pod) are what the engines have.
	Pods   int `json:"pods"`
	Blocks int `json:"blocks"`
	// Missing pairs are the engines' and not the index's, Extra ones the
	// reverse. Both are 0 where the index is the union of the engines' blocks.
	Missing int `json:"missing"`
	Extra   int `json:"extra"`
	// Excuse, where there are any, says why they are no error: what was
	// configured cannot hold more.
	Excuse string `json:"excuse,omitempty"`
	// Events were measured, from the moment at which the engine made them to
	// the one at which look-ups see them; the times are seconds.
	Events int     `json:"events"`
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// Compared is the summary of an index that was compared, with its excuse and its lag.
func Compared(index string, c kvindex.Comparison, excuse string, lag *Lag) IndexSummary {
	s := IndexSummary{Index: index, Pods: c.Pods, Blocks: c.Blocks, Missing: c.Missing, Extra: c.Extra, Excuse: excuse}
	lag.Write(&s)
	return s
}

// ManagerIndex is what the index of document 003's KV-Cache Manager is called.
const ManagerIndex = "kv-cache-manager"

// IndexName is what an index is called, with its picker where there are several.
func IndexName(index, picker string) string {
	if picker == "" {
		return index
	}
	return index + " of " + picker
}

// OK is false where the index is not what it should be.
func (x IndexSummary) OK() bool { return x.Missing+x.Extra == 0 || x.Excuse != "" }

// Verdict says what the comparison came to.
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
	l.add("kv index", fmt.Sprintf("%s: %s on %s, %s", x.Index, counted(x.Blocks, "block"), counted(x.Pods, "pod"),
		verdict))
	if x.Events > 0 {
		l.add("  lag", fmt.Sprintf("%s from made to indexed: p50 %s, p90 %s, p99 %s, max %s",
			counted(x.Events, "event"), terminal.Span(x.P50), terminal.Span(x.P90), terminal.Span(x.P99),
			terminal.Span(x.Max)))
	}
}

// Indexed notes the indexes of the run; the summary tells them. Call it before
// End.
func (s *Session) Indexed(list []IndexSummary) { s.options.told.IndexLag = list }

// Wrong counts the indexes that are not what they should be.
func (s Summary) Wrong() int {
	n := 0
	for _, x := range s.IndexLag {
		if !x.OK() {
			n++
		}
	}
	return n
}
