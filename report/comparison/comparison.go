// Package comparison says how several variants of a scenario differ from the first of them: measure by
// measure, with the interval in which the true difference is and a verdict in words. Each request is held
// against the same one of the other run (docs/decide.md).
package comparison

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Comparison is that of several runs with the first of them, as windtunnel compare --output json says it.
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
}

// Versus is the difference of one of them from the first.
type Versus struct {
	Of       string  `json:"of"`
	With     string  `json:"with"`
	Paired   int     `json:"pairedRequests"`
	Measures []Value `json:"measures"`
	Verdict  string  `json:"verdict"`
	worse    int
}

// Verdicts of differences that are more than chance.
const better, worse = "better", "worse"

// Value is one measure of both.
type Value struct {
	Measure    string      `json:"measure"`
	Unit       report.Unit `json:"unit"`
	A          float64     `json:"a"`
	B          float64     `json:"b"`
	Difference float64     `json:"difference"`
	// Low and High are where the true difference is; absent where Why says why.
	Low     *float64 `json:"low,omitempty"`
	High    *float64 `json:"high,omitempty"`
	Why     string   `json:"why,omitempty"`
	Verdict string   `json:"verdict"`
	measure report.Measure
}

// Of holds the runs of several variants, each played with the same seeds, against the first one's.
// Of the variants only Name and Seed need be given.
func Of(variants []Side, runs []report.Runs, slo report.SLO) *Comparison {
	out := &Comparison{Confidence: 0.95, Replications: len(runs[0]), Variants: variants}
	for i := range variants {
		s := &variants[i]
		s.Steady = true
		for _, x := range runs[i] {
			s.Requests += len(x.Requests) * x.Each
			s.WarmUp = max(s.WarmUp, x.Cut.Seconds())
			s.Steady = s.Steady && x.Steady
		}
		if i > 0 {
			out.Comparisons = append(out.Comparisons, compare(variants[0].Name, s.Name, runs[0], runs[i], slo))
		}
	}
	return out
}

// Worse is how many measures are worse than the first one's.
func (x *Comparison) Worse() (n int) {
	for _, v := range x.Comparisons {
		n += v.worse
	}
	return n
}

// compare holds one scenario's runs against the first one's.
func compare(nameA, nameB string, a, b report.Runs, slo report.SLO) Versus {
	x := Versus{Of: nameB, With: nameA}
	pairedA, pairedB := make(report.Runs, len(a)), make(report.Runs, len(b))
	for i := range a {
		pairedA[i], pairedB[i] = report.Paired(a[i], b[i])
		x.Paired += len(pairedA[i].Requests) * a[i].Each
	}
	underA, underB := pairedA.Under(slo), pairedB.Under(slo)
	var more, less, same, open []string
	for _, m := range report.Measures() {
		d, ok := report.Compare(m, underA, underB)
		if !ok {
			continue
		}
		v := Value{Measure: m.Name, Unit: m.Unit, A: report.Digits(d.A.Value), B: report.Digits(d.B.Value), Difference: report.Digits(d.By.Value), Why: d.By.Why, measure: m}
		if d.By.Sure {
			low, high := report.Digits(d.By.Low), report.Digits(d.By.High)
			v.Low, v.High = &low, &high
		}
		switch {
		case !m.Judged():
			v.Verdict = ""
		case !d.By.Sure:
			v.Verdict = "cannot say"
			open = append(open, m.Name)
		case d.By.Low <= 0 && d.By.High >= 0:
			v.Verdict = "no difference seen"
			if d.By.Low == d.By.High {
				v.Verdict = "the same"
			}
			same = append(same, m.Name)
		case (d.By.Value > 0) == m.HigherIsBetter:
			v.Verdict = better
			more = append(more, fmt.Sprintf("%s (%s)", m.Name, relative(d.A.Value, d.By.Value)))
		default:
			v.Verdict = worse
			less = append(less, fmt.Sprintf("%s (%s)", m.Name, relative(d.A.Value, d.By.Value)))
		}
		x.Measures = append(x.Measures, v)
	}
	x.worse = len(less)
	x.Verdict = x.words(more, less, same, open)
	return x
}

// words is the verdict: what is better and what is worse, by how much, and what
// nobody can tell from these runs.
func (x *Versus) words(more, less, same, open []string) string {
	if x.Paired == 0 {
		return "they have no request in common: nothing can be said"
	}
	var parts []string
	add := func(what string, list []string) {
		if len(list) > 0 {
			parts = append(parts, what+strings.Join(list, ", "))
		}
	}
	switch {
	case len(more) > 0 && len(less) == 0:
		parts = append(parts, x.Of+" is better")
	case len(less) > 0 && len(more) == 0:
		parts = append(parts, x.Of+" is worse")
	case len(more) > 0:
		parts = append(parts, x.Of+" is better in some and worse in others")
	case len(same) > 0:
		parts = append(parts, "no difference was seen")
	}
	add("better: ", more)
	add("worse: ", less)
	if len(more)+len(less) > 0 {
		add("no difference seen: ", same)
	}
	add("these runs cannot say: ", open)
	return strings.Join(parts, "; ")
}

func relative(of, by float64) string {
	if of == 0 || math.Abs(by/of) > 100 {
		return "from " + fmt.Sprintf("%.3g", of)
	}
	return fmt.Sprintf("%+.1f%%", 100*by/of)
}

// Write says it for people, on lines of so many columns; 0 is as long as they are.
func (x *Comparison) Write(to io.Writer, columns int) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, v := range x.Comparisons {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(to, "A  %s\nB  %s\n", describe(x.Variants[0], x.Replications), describe(x.Variants[i+1], x.Replications))
		fmt.Fprintf(w, "measure\tA\tB\tB - A\t95%% interval\t\t\n")
		for _, m := range v.Measures {
			interval := m.Why
			if m.Low != nil {
				interval = fmt.Sprintf("%s .. %s", m.measure.Signed(*m.Low), m.measure.Signed(*m.High))
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", m.Measure, m.measure.Text(m.A), m.measure.Text(m.B), m.measure.Signed(m.Difference), interval, m.Verdict)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(to, terminal.Wrap("verdict  "+v.Verdict, 9, columns)); err != nil {
			return err
		}
	}
	if len(x.Comparisons) > 1 {
		return x.table(to)
	}
	return nil
}

// table has all variants side by side, and which differ from the first by more than chance.
func (x *Comparison) table(to io.Writer) error {
	fmt.Fprintln(to, "\nall of them, beside the first")
	letter := func(i int) string { return string(rune('A' + i)) }
	if len(x.Variants) > 26 {
		letter = func(i int) string { return fmt.Sprint(i + 1) }
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "measure\t")
	for i, v := range x.Variants {
		fmt.Fprintf(to, "%s  %s\n", letter(i), v.Name)
		fmt.Fprintf(w, "%s\t\t", letter(i))
	}
	fmt.Fprintln(w)
	for _, m := range x.Comparisons[0].Measures {
		fmt.Fprintf(w, "%s\t%s\t\t", m.Measure, m.measure.Text(m.A))
		for _, v := range x.Comparisons {
			var text, verdict string
			if k := slices.IndexFunc(v.Measures, func(o Value) bool { return o.Measure == m.Measure }); k >= 0 {
				text = m.measure.Text(v.Measures[k].B)
				if said := v.Measures[k].Verdict; said == better || said == worse {
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
	text := fmt.Sprintf("%s: seed %d, %d requests", s.Name, s.Seed, s.Requests)
	if replications > 1 {
		text += fmt.Sprintf(" of %d runs", replications)
	}
	if s.WarmUp > 0 {
		text += fmt.Sprintf(", after a warm-up of %.1f s", s.WarmUp)
	}
	if !s.Steady {
		text += "; NOT STEADY: its requests in flight never settle"
	}
	return text
}
