package program

import (
	"encoding/json"
	"io"

	"github.com/windtunnel/windtunnel/core/picker"
)

// shownAs is the flag of commands that answer once: a table for a person, or
// the same as JSON.
type shownAs struct {
	Output string `enum:"text,json" default:"text" placeholder:"text|json" help:"text for people, or json: the whole record."`
}

func (s shownAs) json() bool { return s.Output == "json" }

// show prints one decision.
func (s shownAs) show(o *outside, e *picker.Explanation) error {
	if s.json() {
		return writeJSON(o.Stdout, e)
	}
	return e.WriteTable(o.Stdout)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
