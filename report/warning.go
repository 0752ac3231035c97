package report

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/record"
)

// Warning is a part of the picker that did not get what it asked for, so that
// its decisions went on without it.
type Warning struct {
	// Plugin is the part's name in the picker's configuration.
	Plugin string `json:"plugin"`
	// URL is what it asked first without an answer, and Reason why there was none.
	URL    string `json:"url"`
	Reason string `json:"reason"`
	// Count is how often it got nothing: questions, or endpoints whose pages
	// began to fail.
	Count int `json:"count"`
}

// maxWarnings is how many parts are told apart.
const maxWarnings = 32

// warned takes a failed call or scrape into account.
func (t *Tally) warned(e *record.Event) {
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
	l.add("warning", fmt.Sprintf("%s got no answer from %s, %s: %s", x.Plugin, x.URL, counted(x.Count, "time"),
		x.Reason))
}
