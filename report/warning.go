package report

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Warning is a part of the picker whose calls failed, so that decisions were made without the part.
type Warning struct {
	// Plugin is the part's name in the picker's configuration.
	Plugin string `json:"plugin"`
	// URL is the first address that gave no answer, and Reason why.
	URL    string `json:"url"`
	Reason string `json:"reason"`
	// Count counts the failures: calls, or endpoints whose pages began to fail.
	Count int `json:"count"`
}

// maxWarnings bounds the parts that are reported separately.
const maxWarnings = 32

// noteWarning counts a failed call or scrape.
func (t *Tally) noteWarning(e *record.Event) {
	if e.Hop != record.EPP || e.Step != record.CallFailed && e.Step != record.ScrapeFailed {
		return
	}
	text := func(key string) string {
		s, _ := e.Details.Get(key).(string)
		return strings.Clone(s[:min(len(s), 4*longestName)])
	}
	plugin := text("plugin")
	for i := range t.warnings {
		if t.warnings[i].Plugin == plugin {
			t.warnings[i].Count++
			return
		}
	}
	if len(t.warnings) < maxWarnings {
		t.warnings = append(t.warnings, Warning{plugin, text("url"), text("reason"), 1})
	}
}

func (x Warning) write(l *lines) {
	l.add("warning", fmt.Sprintf("%s got no answer from %s, %s: %s", x.Plugin, x.URL, terminal.Counted(x.Count, "time"),
		x.Reason))
}
