// Package comparison decides how variants of a scenario differ from the first of them: measure by measure, with the
// interval of the true difference, and with a verdict in words on some of the measures. Each request is compared with
// the same request of the other run (docs/decide.md).
package comparison

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/stats"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Comparison is the result of windtunnel compare, as --output json prints it.
type Comparison struct {
	SLO          string   `json:"slo,omitempty"`
	Confidence   float64  `json:"confidence"`
	Replications int      `json:"replications"`
	Variants     []Side   `json:"variants"`
	Comparisons  []Versus `json:"comparisons"`
}

// Side is one of the variants.
type Side struct {
	Name     string  `json:"name"`
	Seed     uint64  `json:"seed"`
	Requests int     `json:"requests"`
	WarmUp   float64 `json:"warmUpSeconds"`
	Steady   bool    `json:"steady"`
	// StepTimes is the expected error of the step times, in words.
	StepTimes string `json:"stepTimes,omitempty"`
	steps     report.StepError
}

// Versus is the difference of one variant from the first.
type Versus struct {
	Of       string   `json:"of"`
	With     string   `json:"with"`
	Paired   int      `json:"pairedRequests"`
	Measures []Value  `json:"measures"`
	Verdict  string   `json:"verdict"`
	lacks    []string // measures for the verdict that one of the two runs lacks
}

// Verdict is a verdict on one measure.
type Verdict string

// The verdicts. Only measures that the verdict reads are Better, Worse, Undecided or Unseen.
const (
	Better    Verdict = "better"
	Worse     Verdict = "worse"
	Undecided Verdict = "cannot say"
	Unseen    Verdict = "no difference seen"
	Same      Verdict = "the same"
)

// Value is one measure of both runs.
type Value struct {
	Measure    string      `json:"measure"`
	Unit       report.Unit `json:"unit"`
	A          float64     `json:"a"`
	B          float64     `json:"b"`
	Difference float64     `json:"difference"`
	// Low and High bound the true difference. Without them, Why has the reason.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	Why  string   `json:"why,omitempty"`
	// P is how often chance alone causes such a difference, and Corrected the same for all measures that the verdict
	// reads, by Holm. They are absent where the verdict does not read the measure.
	P         *float64 `json:"p,omitempty"`
	Corrected *float64 `json:"pCorrected,omitempty"`
	Verdict   Verdict  `json:"verdict"`
	measure   report.Measure
	rises     bool // B is above A
	reads     bool // the verdict reads it
}

// byObjective and byDefault are the measures that a verdict reads by default, with and without an SLO.
var (
	byObjective = []string{"goodput", "attainment"}
	byDefault   = []string{"ttft p90", "tpot mean", "e2e p90", "requests/s", "completed"}
)

// Named returns the measures with these names, each as ttft.p90 or as "ttft p90". The error lists the possible names.
func Named(names []string) ([]string, error) {
	var all, out []string
	for _, m := range report.Measures() {
		if m.Judged() {
			all = append(all, m.Name)
		}
	}
	for _, text := range names {
		name := strings.ReplaceAll(text, ".", " ")
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("found %q; expected measures with a better direction, "+
				"such as ttft.p90, separated by commas: %s", text, strings.Join(all, ", "))
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// Of compares the runs of several variants, all played with the same seeds, with those of the first. Of the variants,
// only Name and Seed need be set. The verdicts read the measures with these names, or the default ones.
func Of(variants []Side, runs []report.Runs, slo record.SLO, reads []string) *Comparison {
	out := &Comparison{Confidence: stats.Confidence, Replications: len(runs[0]), Variants: variants}
	for i := range variants {
		s := &variants[i]
		s.Steady = true
		for _, x := range runs[i] {
			s.Requests += len(x.Requests) * x.Each
			s.WarmUp = max(s.WarmUp, x.Cut.Seconds())
			s.Steady = s.Steady && x.Steady
			if s.steps.Text == "" {
				s.steps = report.StepErrorOf(x.Load)
			}
		}
		s.StepTimes = s.steps.Text
		if i > 0 {
			v := Versus{Of: s.Name, With: variants[0].Name}
			v.measure(runs[0], runs[i], slo)
			v.decide(reads)
			v.doubt(&variants[0].steps, &s.steps)
			out.Comparisons = append(out.Comparisons, v)
		}
	}
	return out
}

// FailIfWorse returns an error with its exit code if a measure that the verdict reads is worse than the first
// variant's, or if a run lacks such a measure.
func (x *Comparison) FailIfWorse() error {
	var lacks, worse []error
	for _, v := range x.Comparisons {
		if len(v.lacks) > 0 {
			lacks = append(lacks, fmt.Errorf("%s and %s have no %s in common that could be worse; "+
				"expected measures that both have", v.With, v.Of, strings.Join(v.lacks, ", ")))
		}
		if list := v.said(Worse); len(list) > 0 {
			worse = append(worse, fmt.Errorf("%s is worse than %s: %s", v.Of, v.With, strings.Join(list, ", ")))
		}
	}
	if len(lacks) > 0 {
		return exit.With(exit.Usage, errors.Join(lacks...))
	}
	return exit.With(exit.Failed, errors.Join(worse...))
}

// measure computes every measure's difference.
func (x *Versus) measure(a, b report.Runs, slo record.SLO) {
	pairedA, pairedB := make(report.Runs, len(a)), make(report.Runs, len(b))
	for i := range a {
		pairedA[i], pairedB[i] = report.Paired(a[i], b[i])
		x.Paired += len(pairedA[i].Requests) * a[i].Each
	}
	underA, underB := pairedA.Under(slo), pairedB.Under(slo)
	for _, m := range report.Measures() {
		d, ok := report.Compare(m, underA, underB)
		if !ok {
			continue
		}
		v := Value{Measure: m.Name, Unit: m.Unit, A: report.Digits(d.A.Value), B: report.Digits(d.B.Value),
			Difference: report.Digits(d.By.Value), Why: d.By.Why, measure: m, rises: d.By.Value > 0}
		if d.By.Sure {
			low, high, p := report.Digits(d.By.Low), report.Digits(d.By.High), d.By.P()
			v.Low, v.High, v.P = &low, &high, &p
			if d.By.Low == 0 && d.By.High == 0 {
				v.Verdict = Same
			}
		}
		x.Measures = append(x.Measures, v)
	}
}

// decide sets the verdicts on the measures that the verdict reads, and the sentence.
func (x *Versus) decide(reads []string) {
	chosen := len(reads) > 0
	switch {
	case chosen:
	case x.at(byObjective[0]) >= 0:
		reads = byObjective
	default:
		reads = byDefault
	}
	var list []*Value
	var p []float64
	for _, name := range reads {
		switch k := x.at(name); {
		case k >= 0:
			v := &x.Measures[k]
			v.reads = true
			list, p = append(list, v), append(p, 1) // an undecidable measure counts as a test, too
			if v.P != nil {
				p[len(p)-1] = *v.P
			}
		case chosen:
			x.lacks = append(x.lacks, name)
		}
	}
	for i, corrected := range stats.Holm(p) {
		v := list[i]
		switch {
		case v.P == nil:
			v.Verdict = Undecided
			continue
		case v.Verdict == Same:
		case corrected > 1-stats.Confidence:
			v.Verdict = Unseen
		case v.rises == v.measure.HigherIsBetter:
			v.Verdict = Better
		default:
			v.Verdict = Worse
		}
		v.Corrected = &corrected
	}
	for i := range x.Measures {
		for _, p := range []*float64{x.Measures[i].P, x.Measures[i].Corrected} {
			if p != nil {
				*p = report.Digits(*p)
			}
		}
	}
	x.Verdict = x.sentence()
}

// doubt adds to the verdict the measures whose difference is less than the expected error of the step times. If both
// variants have the same step times, the error is in both and the difference stands.
func (x *Versus) doubt(a, b *report.StepError) {
	if a.Sources == b.Sources {
		return
	}
	var names []string
	for _, v := range x.Measures {
		off := max(a.Most(), b.Most())
		switch name, _, _ := strings.Cut(v.Measure, " "); name {
		case "ttft":
			off = max(a.TTFT, b.TTFT)
		case "tpot", "itl":
			off = max(a.TPOT, b.TPOT)
		}
		if (v.Verdict == Better || v.Verdict == Worse) && math.Abs(v.Difference) < off*math.Abs(v.A) {
			names = append(names, fmt.Sprintf("%s (±%.0f%%)", v.Measure, 100*off))
		}
	}
	if len(names) > 0 {
		x.Verdict += "; the expected error of the step times could turn " + strings.Join(names, ", ")
	}
}

// at returns the index of the measure with this name, or -1.
func (x *Versus) at(name string) int {
	return slices.IndexFunc(x.Measures, func(v Value) bool { return v.Measure == name })
}

// said returns the measures with this verdict. Differences are followed by their size.
func (x *Versus) said(what Verdict) (list []string) {
	for _, v := range x.Measures {
		switch {
		case !v.reads || v.Verdict != what:
		case what == Better || what == Worse:
			list = append(list, v.Measure+" "+relative(v.A, v.Difference))
		default:
			list = append(list, v.Measure)
		}
	}
	return list
}

// sentence returns the verdict in words: which measures are better and worse, by how much, and which the runs cannot
// decide.
func (x *Versus) sentence() string {
	if x.Paired == 0 {
		return fmt.Sprintf("%s and %s have no request in common and cannot be compared", x.Of, x.With)
	}
	better, worse := x.said(Better), x.said(Worse)
	unseen, same, open := x.said(Unseen), x.said(Same), x.said(Undecided)
	join := func(list []string) string { return strings.Join(list, ", ") }
	var parts []string
	switch {
	case len(better) > 0 && len(worse) > 0:
		parts = append(parts, fmt.Sprintf("%s is better than %s in some and worse in others; better: %s; worse: %s",
			x.Of, x.With, join(better), join(worse)))
	case len(better) > 0:
		parts = append(parts, fmt.Sprintf("%s is better than %s: %s", x.Of, x.With, join(better)))
	case len(worse) > 0:
		parts = append(parts, fmt.Sprintf("%s is worse than %s: %s", x.Of, x.With, join(worse)))
	case len(unseen) > 0:
		parts = append(parts, fmt.Sprintf("no difference seen between %s and %s: %s", x.Of, x.With, join(unseen)))
		unseen = nil
	case len(same) > 0:
		parts = append(parts, fmt.Sprintf("%s is the same as %s: %s", x.Of, x.With, join(same)))
		same = nil
	default:
		parts = append(parts, fmt.Sprintf("these runs cannot say whether %s is better or worse than %s: %s", x.Of,
			x.With, join(open)))
		open = nil
	}
	for _, rest := range []struct {
		what string
		list []string
	}{{"no difference seen", unseen}, {"the same", same}, {"these runs cannot say", open}} {
		if len(rest.list) > 0 {
			parts = append(parts, rest.what+": "+join(rest.list))
		}
	}
	return strings.Join(parts, "; ")
}

func relative(of, by float64) string {
	if of == 0 || math.Abs(by/of) > 100 {
		return "from " + fmt.Sprintf("%.3g", of)
	}
	return fmt.Sprintf("%+.1f%%", 100*by/of)
}

// Write prints the comparison for people, on lines of so many columns; 0 columns never break.
func (x *Comparison) Write(to io.Writer, paint terminal.Paint, columns int) error {
	for _, v := range x.Comparisons {
		line := terminal.Wrap(terminal.Printable(v.Verdict), 2, columns)
		switch {
		case len(v.said(Worse)) > 0:
			line = paint.Red(line)
		case len(v.said(Better)) > 0:
			line = paint.Green(line)
		}
		fmt.Fprintln(to, line)
	}
	for i := range x.Comparisons {
		a, b := describe(x.Variants[0], x.Replications), describe(x.Variants[i+1], x.Replications)
		fmt.Fprintf(to, "\nA  %s\nB  %s\n", a, b)
		if err := x.Comparisons[i].write(to, paint, columns); err != nil {
			return err
		}
	}
	if len(x.Comparisons) > 1 {
		return x.table(to)
	}
	return nil
}

// Undecided reports whether the verdict on any variant says that the runs cannot say.
func (x *Comparison) Undecided() bool {
	return slices.ContainsFunc(x.Comparisons, func(v Versus) bool { return len(v.said(Undecided)) > 0 })
}

// write prints a line for each measure that the verdict reads, that differs or that is of servers, and one line with
// the names of the others.
func (x *Versus) write(to io.Writer, paint terminal.Paint, columns int) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "measure\tA\tB\tB - A\t95%% interval\t\n")
	folded, why := map[string][]string{}, []string(nil)
	for _, v := range x.Measures {
		interval := v.Why
		if v.Low != nil {
			interval = fmt.Sprintf("%s .. %s", v.measure.Signed(*v.Low), v.measure.Signed(*v.High))
		}
		if reason := v.folds(); reason != "" {
			if folded[reason] == nil {
				why = append(why, reason)
			}
			folded[reason] = append(folded[reason], v.Measure)
			continue
		}
		word := string(v.Verdict)
		switch v.Verdict {
		case Better:
			word = paint.Green(word)
		case Worse:
			word = paint.Red(word)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t  %s\n", v.Measure, v.measure.Text(v.A), v.measure.Text(v.B),
			v.measure.Signed(v.Difference), interval, word)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, reason := range why {
		line := terminal.Wrap(reason+": "+strings.Join(folded[reason], ", "), 2, columns)
		if _, err := fmt.Fprintln(to, paint.Dim(line)); err != nil {
			return err
		}
	}
	return nil
}

// folds returns why a measure has no line of its own, empty where it has one.
func (v *Value) folds() string {
	switch {
	case v.reads || !v.measure.Judged():
		return ""
	case v.Low == nil:
		return "cannot say, " + v.Why
	case v.Verdict == Same:
		return string(Same)
	case *v.Low <= 0 && *v.High >= 0:
		return string(Unseen)
	}
	return ""
}

// table prints all variants side by side, with their verdicts.
func (x *Comparison) table(to io.Writer) error {
	fmt.Fprintln(to, "\nall of them, beside the first")
	letter := func(i int) string { return string(rune('A' + i)) }
	if len(x.Variants) > 26 {
		letter = func(i int) string { return fmt.Sprint(i + 1) }
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "measure\t")
	for i, v := range x.Variants {
		fmt.Fprintf(to, "%s  %s\n", letter(i), terminal.Printable(v.Name))
		fmt.Fprintf(w, "%s\t\t", letter(i))
	}
	fmt.Fprintln(w)
	for _, m := range x.Comparisons[0].Measures {
		fmt.Fprintf(w, "%s\t%s\t\t", m.Measure, m.measure.Text(m.A))
		for _, v := range x.Comparisons {
			var text string
			var verdict Verdict
			if k := v.at(m.Measure); k >= 0 {
				text = m.measure.Text(v.Measures[k].B)
				if said := v.Measures[k].Verdict; said == Better || said == Worse {
					verdict = said
				}
			}
			fmt.Fprintf(w, "%s\t%s\t", text, verdict)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func describe(s Side, replications int) string {
	text := fmt.Sprintf("%s: seed %d, %s", terminal.Printable(s.Name), s.Seed,
		terminal.Counted(s.Requests, "request"))
	if replications > 1 {
		text += fmt.Sprintf(" of %d runs", replications)
	}
	if s.WarmUp > 0 {
		text += fmt.Sprintf(", after a warm-up of %.1f s", s.WarmUp)
	}
	if !s.Steady {
		text += "; NOT STEADY: its requests in flight never settle"
	}
	if s.StepTimes != "" {
		text += "; step times of " + s.StepTimes
	}
	return text
}
