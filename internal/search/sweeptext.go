package search

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/table"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Write prints the points as text, json, csv or parquet. Text has lines of at most so many columns; 0 columns are no
// limit.
func (x *Swept) Write(to io.Writer, form string, columns int) error {
	switch form {
	case "json":
		for _, p := range x.points {
			if err := json.NewEncoder(to).Encode(p); err != nil {
				return err
			}
		}
		return nil
	case "csv", "parquet":
		w := table.CSV(to, x.columns())
		if form == "parquet" {
			w = table.Parquet(to, x.columns())
		}
		x.rows(w)
		return w.Close()
	}
	return x.writeText(to, columns)
}

// verdict returns how many combinations can be relied on.
func (x *Swept) verdict() string {
	failed, unsteady := 0, 0
	for _, p := range x.points {
		if p.Failed > 0 {
			failed++
		}
		if !p.Steady {
			unsteady++
		}
	}
	text := terminal.Counted(len(x.points), "combination")
	if x.Sound() {
		return text + ": all requests completed, all runs steady"
	}
	return fmt.Sprintf("%s: %d with requests that did not complete, %d not steady", text, failed, unsteady)
}

// column is a column of the table: a field or a measure, and its value in each row.
type column struct {
	name  string
	cells []string
}

func (x *Swept) column(name string, cell func(p *Point) string) column {
	return column{name, terminal.Texts(len(x.points), func(i int) string { return cell(x.points[i]) })}
}

// width returns the columns of a terminal that a column takes.
func (c *column) width() int {
	n := terminal.Columns(c.name)
	for _, cell := range c.cells {
		n = max(n, terminal.Columns(cell))
	}
	return n
}

// leftOut is the order in which the default measures leave a table that is too wide.
var leftOut = []string{"hit rate", "output tokens/s", "e2e p50", "ttft p50", "requests/s", "tpot mean", "e2e p99",
	"goodput", "attainment"}

// needed returns the measures that stay longest in a table.
func (x *Swept) needed() (out []report.Measure) {
	for _, m := range x.shown {
		if x.chosen || !slices.Contains(leftOut[:5], m.Name) {
			out = append(out, m)
		}
	}
	return out
}

// table returns the columns that fit, and lines about the others. A table that is too wide loses the columns with one
// value in all rows, then the leading parts of fields, then measures.
func (x *Swept) table(columns int) (fields, measures []column, about []string) {
	for _, path := range x.paths {
		fields = append(fields, x.column(path, func(p *Point) string { return p.Set[path] }))
	}
	for _, m := range x.shown {
		measures = append(measures, x.column(m.Name, func(p *Point) string { return p.text(m) }))
	}
	notes := x.column("", (*Point).note)
	wide := func() bool {
		n := notes.width()
		for _, c := range slices.Concat(fields, measures) {
			n += c.width() + 2
		}
		return columns > 0 && n > columns
	}
	if wide() && len(x.points) > 1 {
		var same []string
		lift := func(c column) bool {
			if slices.ContainsFunc(c.cells, func(cell string) bool { return cell != c.cells[0] }) {
				return false
			}
			same = append(same, c.name+" "+c.cells[0])
			return true
		}
		fields, measures = slices.DeleteFunc(fields, lift), slices.DeleteFunc(measures, lift)
		if same != nil {
			about = append(about, "in all: "+strings.Join(same, ", "))
		}
	}
	if wide() {
		shorten(fields)
	}
	var gone []string
	for next := 0; wide() && len(measures) > 1; next++ {
		i := len(measures) - 1
		if !x.chosen && next < len(leftOut) {
			i = slices.IndexFunc(measures, func(c column) bool { return c.name == leftOut[next] })
		}
		if i >= 0 {
			gone = append(gone, measures[i].name)
			measures = slices.Delete(measures, i, i+1)
		}
	}
	if gone != nil {
		about = append(about, "left out: "+strings.Join(gone, ", ")+" (--measure chooses, --output csv has all)")
	}
	return fields, append(measures, notes), about
}

// shorten leaves the last parts of fields' paths, as many as distinguish them.
func shorten(fields []column) {
	for i := range fields {
		parts := strings.Split(fields[i].name, ".")
		for n := 1; n < len(parts); n++ {
			short := strings.Join(parts[len(parts)-n:], ".")
			if !slices.ContainsFunc(fields, func(c column) bool {
				return c.name != fields[i].name && (c.name == short || strings.HasSuffix(c.name, "."+short))
			}) {
				fields[i].name = short
				break
			}
		}
	}
}

func (x *Swept) writeText(to io.Writer, columns int) error {
	fields, measures, about := x.table(columns)
	lines := append([]string{x.verdict()}, about...)
	table := slices.Concat(fields, measures)
	for row := range len(x.points) + 1 { // the names first
		var b strings.Builder
		for i, c := range table {
			cell := c.name
			if row > 0 {
				cell = c.cells[row-1]
			}
			if i < len(table)-1 { // the last one is the notes
				fmt.Fprintf(&b, "%*s%s  ", c.width()-terminal.Columns(cell), "", cell)
				continue
			}
			b.WriteString(cell)
		}
		lines = append(lines, b.String())
	}
	why := "the run is too short or unsteady for it (--output csv or json have the reason); --replications 10 " +
		"plays several"
	if x.replications > 1 {
		why = "the runs are too short for it (--output csv or json have the number of requests that each needs)"
	}
	if slices.ContainsFunc(x.points, func(p *Point) bool { return p.unsure(x.shown) }) {
		lines = append(lines, "? has no interval: "+why)
	}
	for _, p := range x.points {
		if text := "step times of " + p.StepTimes; p.StepTimes != "" && !slices.Contains(lines, text) {
			lines = append(lines, text)
		}
	}
	for _, line := range lines {
		if terminal.Columns(line) > columns {
			line = terminal.Wrap(line, 2, columns)
		}
		if _, err := fmt.Fprintln(to, line); err != nil {
			return err
		}
	}
	return nil
}

// note returns what a reader of the point has to know first, "" for nothing.
func (p *Point) note() string {
	var out []string
	if p.Failed > 0 {
		out = append(out, fmt.Sprintf("%d of %d did not complete", p.Failed, p.Requests))
	}
	if !p.Steady {
		out = append(out, "not steady")
	}
	return strings.Join(out, ", ")
}

// words returns measures in one line.
func (p *Point) words(shown []report.Measure) string {
	out := terminal.Texts(len(shown), func(i int) string { return shown[i].Name + " " + p.text(shown[i]) })
	if note := p.note(); note != "" {
		out = append(out, note)
	}
	return strings.Join(out, ", ")
}

// of returns a measure of the point, nil without it.
func (p *Point) of(m report.Measure) *report.Measured {
	if i := slices.IndexFunc(p.Measures, func(v report.Measured) bool { return v.Measure == m.Name }); i >= 0 {
		return &p.Measures[i]
	}
	return nil
}

// text returns a measure with half of its interval.
func (p *Point) text(m report.Measure) string {
	if v := p.of(m); v != nil {
		return v.Interval()
	}
	return "-"
}

// unsure reports whether one of these measures has no interval.
func (p *Point) unsure(shown []report.Measure) bool {
	return slices.ContainsFunc(shown, func(m report.Measure) bool { v := p.of(m); return v != nil && v.Low == nil })
}

// columns returns those of rows.
func (x *Swept) columns() (out []table.Column) {
	for _, path := range x.paths {
		out = append(out, table.Column{Name: path})
	}
	return slices.Concat(out, []table.Column{{Name: "requests", Kind: table.Whole}, {Name: "failed", Kind: table.Whole},
		{Name: "steady"}, {Name: "warm_up_seconds", Kind: table.Decimal, Digits: table.Exact}}, measureColumns)
}

// rows writes a row for each measure of each point.
func (x *Swept) rows(to table.Writer) {
	for _, p := range x.points {
		var of []table.Value
		for _, path := range x.paths {
			of = append(of, table.Of(p.Set[path]))
		}
		of = append(of, table.Number(float64(p.Requests)), table.Number(float64(p.Failed)),
			table.Of(strconv.FormatBool(p.Steady)), table.Number(p.WarmUp))
		for i := range p.Measures {
			to.Write(slices.Concat(of, measureCells(&p.Measures[i])))
		}
	}
}
