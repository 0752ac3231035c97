package program

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// textOrJSON is the flag of commands with one result: a table for people, or the same as JSON.
type textOrJSON struct {
	Output string `short:"o" enum:"text,json" default:"text" help:"text for people, or json."`
}

// print writes a result as JSON, or by a function that wraps lines at so many columns.
func (s textOrJSON) print(o *outside, result any, text func(to io.Writer, columns int) error) error {
	if s.json() {
		return writeJSON(o.Stdout, result)
	}
	return text(o.Stdout, o.Columns)
}

func (s textOrJSON) json() bool { return s.Output == "json" }

// show prints one decision.
func (s textOrJSON) show(o *outside, e *picker.Explanation) error {
	if s.json() {
		return writeJSON(o.Stdout, e)
	}
	var table strings.Builder
	if err := e.WriteTable(&table, o.Columns); err != nil {
		return err
	}
	paint, first := terminal.Paint(o.Color()), true
	for line := range strings.Lines(table.String()) {
		line = terminal.Printable(strings.TrimRight(line, " \n"))
		if o.Columns > 0 && terminal.Columns(line) > o.Columns {
			line = terminal.Wrap(line, 4, o.Columns)
		}
		switch {
		case first && e.Error != "":
			line = paint.Red(line)
		case first:
			line = paint.Bold(line)
		case strings.HasSuffix(line, "<- picked"):
			line = paint.Green(line)
		}
		first = false
		if _, err := fmt.Fprintln(o.Out(), line); err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
