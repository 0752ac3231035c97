package tune

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/report"
)

// mostColumns bounds the configurations of a table, so that it stays within mostWidth columns.
const mostColumns, mostWidth = 4, 80

// Write prints the result for people, the verdict first.
func (x *Tuned) Write(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, x.Verdict)
	if x.Doubt != "" {
		fmt.Fprintln(w, x.Doubt)
	}
	fmt.Fprintf(w, "%d runs in the search, %d in all\n", x.Runs, x.AllRuns)
	if len(x.Others) > 0 {
		fmt.Fprintf(w, "scenarios: %s, %s\n", x.Scenario, strings.Join(x.Others, ", "))
	}
	columns := x.columns()
	for len(columns) > 0 {
		n := min(len(columns), mostColumns)
		x.block(w, columns[:n])
		columns = columns[n:]
	}
	x.around(w)
	x.differences(w)
	x.writeElsewhere(w)
	if err := w.Flush(); err != nil {
		return err
	}
	return x.writeConfig(to)
}

// column is a configuration of the table.
type column struct {
	head  string
	of    *Finalist
	gains bool
}

// columns returns today's configuration and the best ones.
func (x *Tuned) columns() (out []column) {
	if !x.Interrupted {
		out = append(out, column{"today", &x.Today, false})
	}
	for i := range x.Best {
		head := fmt.Sprint(i + 1)
		if len(x.Objectives) > 1 && i == x.Knee && !x.Interrupted {
			head += " (knee)"
		}
		out = append(out, column{head, &x.Best[i], !x.Interrupted})
	}
	return out
}

// block prints configurations side by side: objectives, gains and values.
func (x *Tuned) block(w io.Writer, columns []column) {
	row := func(name string, cell func(c *column) string) {
		fmt.Fprint(w, name)
		for i := range columns {
			fmt.Fprint(w, "\t", cell(&columns[i]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	row("", func(c *column) string { return c.head })
	for o, name := range x.Objectives {
		row(name, func(c *column) string { return x.t.objectives[o].text(c.of.Results[o].Value) })
		if slices.ContainsFunc(columns, func(c column) bool { return c.gains }) {
			gain := func(of func(r *Result) float64) func(c *column) string {
				return func(c *column) string {
					if !c.gains {
						return ""
					}
					return share(of(&c.of.Results[o]))
				}
			}
			row("  gain", gain(func(r *Result) float64 { return r.Gain }))
			row("  from", gain(func(r *Result) float64 { return r.Low }))
			row("  to", gain(func(r *Result) float64 { return r.High }))
		}
	}
	if slices.ContainsFunc(columns, func(c column) bool { return !c.of.Kept }) {
		row("limits", func(c *column) string { return limits(c.of.Kept) })
	}
	for i := range x.Knobs {
		k := &x.Knobs[i]
		row(k.short(), func(c *column) string { return cmp.Or(c.of.Values[k.Name], k.Today, "as it is") })
	}
}

func limits(kept bool) string { return map[bool]string{true: "kept", false: "missed"}[kept] }

// mostName bounds the name of a knob in a table.
const mostName = 36

// short returns the end of a long name.
func (k *Knob) short() string {
	if len(k.Name) <= mostName {
		return k.Name
	}
	return "…" + k.Name[len(k.Name)-mostName+1:]
}

// around prints what the knobs do around the best candidate.
func (x *Tuned) around(w io.Writer) {
	if len(x.Sensitivity) > 0 {
		fmt.Fprintf(w, "\nin candidate %d, the others unchanged\n", x.Knee+1)
	}
	short := func(name string) string { return (&Knob{Name: name}).short() }
	for i := range x.Sensitivity {
		s := &x.Sensitivity[i]
		in := ""
		if len(x.Objectives) > 1 {
			in = "\n  in " + s.Objective
		}
		if len(s.Values) == 0 {
			continue
		}
		if !s.Matters {
			fmt.Fprintf(w, "%s: changes nothing%s from %s to %s\n", short(s.Knob), in, s.Values[0],
				s.Values[len(s.Values)-1])
			continue
		}
		fmt.Fprintf(w, "%s: changes%s\n", short(s.Knob), in)
		for n, v := range s.Values {
			change := fmt.Sprintf("%+.1f %%", 100*s.Changes[n])
			if s.Changes[n] < -1 {
				change = "below -100 %"
			}
			fmt.Fprintf(w, "  %s\t%s\n", v, change)
		}
	}
	for i := range x.Pairs {
		p := &x.Pairs[i]
		fmt.Fprintf(w, "%s and %s depend on each other:\n  at %s and %s, %+.1f %% beside the sum of both (%s to %s)\n",
			short(p.Knobs[0]), short(p.Knobs[1]), p.Values[0], p.Values[1], 100*p.Together, share(p.Low), share(p.High))
	}
}

// differences prints the measures of today's configuration and of the best one.
func (x *Tuned) differences(w io.Writer) {
	if x.Interrupted {
		return
	}
	best := x.Best[x.Knee]
	fmt.Fprintf(w, "\n\ttoday\t%d\n", x.Knee+1)
	for _, name := range shownMeasures {
		m, _ := report.MeasureNamed(name)
		a, has := x.Today.Measures[name]
		b, both := best.Measures[name]
		if has && both {
			fmt.Fprintf(w, "%s\t%s\t%s\n", name, m.Text(a), m.Text(b))
		}
	}
	a, n := longest(x.Today.Measures)
	if b, m := longest(best.Measures); a != "" && b != "" {
		fmt.Fprintf(w, "longest queue\t%.3g at %s\t%.3g at %s\n", n, a, m, b)
	}
}

// writeConfig prints the configuration of the best candidate, where it is better.
func (x *Tuned) writeConfig(to io.Writer) error {
	var b strings.Builder
	if x.StepTimes != "" {
		fmt.Fprintf(&b, "\nstep times of %s\n", x.StepTimes)
	}
	if x.Better && len(x.Settings) > 0 {
		b.WriteString("\n")
		for _, s := range x.Settings {
			fmt.Fprintf(&b, "--set %s\n", s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.Configs)) {
		if x.Better {
			fmt.Fprintf(&b, "\n# the picker of pool %s\n%s", name, x.Configs[name])
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}
