package tune

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/report"
)

// Write prints the result for people, the verdict first.
func (x *Tuned) Write(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, x.Verdict)
	fmt.Fprintf(w, "%d runs in the search, %d in all, %.0f s\n\n", x.Runs, x.AllRuns, x.Seconds)
	head := "\t" + x.measure.Name + "\tgain\t"
	for _, k := range x.Knobs {
		head += "\t" + k.Name
	}
	fmt.Fprintln(w, head)
	if !x.Interrupted {
		fmt.Fprintf(w, "today\t%s\t\t\t%s\n", x.measure.Text(x.Today.Value), x.valuesOf(&x.Today))
	}
	for i := range x.Best {
		f := &x.Best[i]
		gain := ""
		if !x.Interrupted {
			gain = fmt.Sprintf("%s\t%s to %s", share(f.Gain), share(f.Low), share(f.High))
		}
		note := ""
		if !f.Kept {
			note = "\tmisses a bound"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s%s\n", i+1, x.measure.Text(f.Value), cmp.Or(gain, "\t"), x.valuesOf(f), note)
	}
	if len(x.Sensitivity) > 0 {
		fmt.Fprintf(w, "\nin the best one, the others unchanged\n")
	}
	for i := range x.Sensitivity {
		fmt.Fprintln(w, x.Sensitivity[i].text())
	}
	x.differences(w)
	if err := w.Flush(); err != nil {
		return err
	}
	return x.writeConfig(to)
}

// valuesOf returns a finalist's values, one column for each knob.
func (x *Tuned) valuesOf(f *Finalist) string {
	words := make([]string, len(x.Knobs))
	for i, k := range x.Knobs {
		words[i] = cmp.Or(f.Values[k.Name], k.Today, "as it is")
	}
	return strings.Join(words, "\t")
}

// text describes how much a knob matters.
func (s *Sensitivity) text() string {
	if !s.Matters {
		return fmt.Sprintf("%s\tchanges nothing from %s to %s", s.Knob, s.Values[0], s.Values[len(s.Values)-1])
	}
	var words []string
	for i, v := range s.Values {
		change := fmt.Sprintf("%+.1f %%", 100*s.Changes[i])
		if s.Changes[i] < -1 {
			change = "below -100 %"
		}
		words = append(words, v+": "+change)
	}
	return s.Knob + "\t" + strings.Join(words, ", ")
}

// differences prints the measures of today's configuration and of the best one.
func (x *Tuned) differences(w io.Writer) {
	if x.Interrupted {
		return
	}
	best := x.Best[0]
	fmt.Fprintf(w, "\n\ttoday\tbest\n")
	for _, name := range shownMeasures {
		m, _ := report.MeasureNamed(name)
		a, has := x.Today.Measures[name]
		b, both := best.Measures[name]
		if has && both {
			fmt.Fprintf(w, "%s\t%s\t%s\n", name, m.Text(a), m.Text(b))
		}
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
	names := make([]string, 0, len(x.Configs))
	for name := range x.Configs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if x.Better {
			fmt.Fprintf(&b, "\n# the picker of pool %s\n%s", name, x.Configs[name])
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}
