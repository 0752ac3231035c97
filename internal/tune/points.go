package tune

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/windtunnel/windtunnel/report/table"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
)

// Point is a configuration that played whole runs.
type Point struct {
	// Of is search, or today or best with its number for those that fresh seeds decided about.
	Of string
	// Values are the values by knob, "" where today's is unknown. At are their places in the ranges, from 0 to 1, below
	// 0 for an unknown value and one outside the range.
	Values []string
	At     []float64
	// Results are the values of the objectives, also as Texts with units: of one run, or means over fresh seeds. Kept
	// reports whether the limits are kept.
	Results []float64
	Texts   []string
	Kept    bool
}

// Points returns the candidates of the search, the best first, then today's configuration and the best ones.
func (x *Tuned) Points() (out []Point) {
	add := func(of string, values map[string]string, results []float64, kept bool) {
		p := Point{Of: of, Results: results, Kept: kept,
			Texts: terminal.Texts(len(results), func(i int) string { return x.t.objectives[i].text(results[i]) })}
		for i := range x.Knobs {
			k := &x.Knobs[i]
			value := cmp.Or(values[k.Name], k.Today)
			at, ok := k.at(value)
			if !ok {
				at = -1
			}
			p.Values, p.At = append(p.Values, value), append(p.At, at)
		}

		out = append(out, p)
	}
	for i := range x.Candidates {
		c := &x.Candidates[i]
		add("search", c.Values, c.Results, c.Kept)
	}
	for _, c := range x.columns() {
		var results []float64
		for _, r := range c.of.Results {
			results = append(results, r.Value)
		}
		of := "best " + c.head
		if c.of == &x.Today {
			of = c.head
		}
		add(of, c.of.Values, results, c.of.Kept)
	}
	return out
}

// Prepared returns the first scenario with a point's values, as its first run with a fresh seed plays it.
func (x *Tuned) Prepared(p *Point) (*scenario.Scenario, error) {
	j := job{length: 1, seed: decidingSeed}
	if p.Of != "today" {
		j.values = p.Values
	}
	return x.t.prepared(0, &j)
}

// Higher reports whether higher values of an objective are better.
func (x *Tuned) Higher(objective int) bool { return x.t.objectives[objective].higher }

// Range returns a knob's values in words.
func (k *Knob) Range() string {
	if len(k.Values) > 0 {
		return strings.Join(k.Values, ", ")
	}
	text := fmt.Sprintf("%v to %v", k.Low, k.High)
	if k.Zero {
		text = "0, " + text
	}
	return text
}

// WriteTable writes a row for each point, as comma-separated values or as Parquet: its values, the objectives, and
// whether it keeps the limits.
func (x *Tuned) WriteTable(to io.Writer, parquet bool) error {
	columns := []table.Column{{Name: "of"}}
	for i := range x.Knobs {
		columns = append(columns, table.Column{Name: x.Knobs[i].Name})
	}
	for _, name := range x.Objectives {
		columns = append(columns, table.Column{Name: name, Kind: table.Decimal, Digits: 6})
	}
	columns = append(columns, table.Column{Name: "limits"})
	open := table.CSV
	if parquet {
		open = table.Parquet
	}
	w := open(to, columns)
	points := x.Points()
	for i := range points {
		p := &points[i]
		of, _, _ := strings.Cut(p.Of, " ")
		row := []table.Value{table.Of(of)}
		for _, v := range p.Values {
			row = append(row, table.Of(v))
		}
		for _, v := range p.Results {
			row = append(row, table.Number(v))
		}
		w.Write(append(row, table.Of(limits(p.Kept))))
	}
	return w.Close()
}
