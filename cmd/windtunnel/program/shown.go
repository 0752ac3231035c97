package program

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
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

// verdict is print for a result that begins with the verdict, good or not; its further lines are indented. Lines that
// end with one of bad are marked, too.
func (s textOrJSON) verdict(o *outside, result any, good bool, text func(to io.Writer, columns int) error,
	bad ...string) error {
	return s.print(o, result, func(_ io.Writer, columns int) error {
		var b strings.Builder
		if err := text(&b, columns); err != nil {
			return err
		}
		verdict := true
		return paintLines(o, b.String(), func(p terminal.Paint, i int, line string) string {
			verdict = verdict && (i == 0 || strings.HasPrefix(line, " "))
			switch {
			case verdict && good:
				return p.Bold(p.Green(line))
			case verdict:
				return p.Bold(p.Red(line))
			case slices.ContainsFunc(bad, func(word string) bool { return strings.Contains(line, word) }):
				return p.Red(line)
			}
			return line
		})
	})
}

// paintLines prints lines, each coloured by a function.
func paintLines(o *outside, text string, style func(p terminal.Paint, i int, line string) string) error {
	i := 0
	for line := range strings.Lines(text) {
		line = terminal.Printable(strings.TrimRight(line, " \n"))
		if _, err := fmt.Fprintln(o.Out(), style(terminal.Paint(o.Color()), i, line)); err != nil {
			return err
		}
		i++
	}
	return nil
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
	return paintLines(o, table.String(), func(p terminal.Paint, i int, line string) string {
		if o.Columns > 0 && terminal.Columns(line) > o.Columns {
			line = terminal.Wrap(line, 4, o.Columns)
		}
		switch {
		case i == 0 && e.Error != "":
			return p.Bold(p.Red(line))
		case i == 0:
			return p.Bold(line)
		case strings.HasSuffix(line, "<- picked"):
			return p.Green(line)
		}
		return line
	})
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
