package tune

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/comparison"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/limit"
)

// mostObjectives bounds the objectives. With two, the result is the front of the best trade-offs.
const mostObjectives = 2

// run is a run that is judged.
type run struct {
	*search.Result
	measures *report.Analysis
}

// objective is a number of a run, with the direction that is better.
type objective struct {
	name   string
	higher bool // is better
	of     func(*run) float64
	text   func(float64) string
}

// signed turns a value into a score's, or back: a lower score is better.
func (o *objective) signed(v float64) float64 {
	if o.higher {
		return -v
	}
	return v
}

// bound is a limit that a candidate keeps.
type bound struct {
	limit.Bounds
	words string
	of    func(*run) float64
}

// goal are the objectives, with the limits that a candidate keeps.
type goal struct {
	objectives []objective
	keep       []bound
	slo        record.SLO
}

// newGoal reads objectives and limits. Without an objective, it is the default one of a scenario.
func newGoal(s *scenario.Scenario, objectives, keep, slo []string) (g goal, err error) {
	if g.slo, err = record.ParseSLO(slo); err != nil {
		return g, exit.Errorf(exit.Usage, "--slo: %w", err)
	}
	if len(objectives) > mostObjectives {
		return g, exit.Errorf(exit.Usage, "--objective: found %d; expected one or two", len(objectives))
	}
	if len(objectives) == 0 {
		objectives = []string{"e2e mean"}
		if g.slo.Given() || s.Workload.Judges() {
			objectives[0] = "goodput"
		}
	}
	for _, text := range objectives {
		o, err := newObjective(text)
		if err != nil {
			return g, exit.Errorf(exit.Usage, "--objective %s: %w", text, err)
		}
		if slices.ContainsFunc(g.objectives, func(p objective) bool { return p.name == o.name }) {
			return g, exit.Errorf(exit.Usage, "--objective: %s is given twice; expected two that differ", o.name)
		}
		if (o.name == "goodput" || o.name == "attainment") && !g.slo.Given() && !s.Workload.Judges() {
			return g, exit.Errorf(exit.Usage, "--objective %s: nothing says which answers are good; expected --slo, "+
				"or workload.slo or a class's slo in the scenario", text)
		}
		g.objectives = append(g.objectives, o)
	}
	for _, text := range keep {
		b, err := newBound(text)
		if err != nil {
			return g, exit.Errorf(exit.Usage, "--keep: %w", err)
		}
		g.keep = append(g.keep, b)
	}
	return g, nil
}

// newObjective reads a measure with a better direction, or min: or max: before a figure or an expression.
func newObjective(text string) (o objective, err error) {
	rest, least := strings.CutPrefix(text, "min:")
	if !least {
		if rest, o.higher = strings.CutPrefix(text, "max:"); !o.higher {
			return measured(text)
		}
	}
	o.name, o.text = text, func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	if o.of, err = figure(rest); err == nil {
		return o, nil
	}
	if m, known := measured(rest); known == nil {
		o.of, o.text = m.of, m.text
		return o, nil
	}
	if strings.ContainsAny(rest, "+-*/()<>? ") {
		o.of, err = expression(rest)
	}
	return o, err
}

// measured returns the objective of a measure.
func measured(text string) (o objective, err error) {
	names, err := comparison.Named([]string{text})
	if err != nil {
		return o, fmt.Errorf("%w; or min: or max: before a number of the summary, such as "+
			"max:classes[chat].attainment, or before an expression over measures, such as "+
			"'min:ttft_p99 + 20 * tpot_p99'",
			err)
	}
	m, _ := report.MeasureNamed(names[0])
	return objective{m.Name, m.HigherIsBetter, func(x *run) float64 { return valueOf(x.measures, m.Name) }, m.Text}, nil
}

// figure returns a function for a number of the summary, by its path in JSON.
func figure(path string) (func(*run) float64, error) {
	var f limit.Figure
	if err := f.UnmarshalText([]byte(path + " <= 0")); err != nil {
		return nil, err
	}
	if _, _, err := (&report.Summary{}).Figure(f.Path); err != nil {
		return nil, err
	}
	return func(x *run) float64 {
		v, found, err := x.Summary.Figure(f.Path)
		if err != nil || !found {
			return math.NaN()
		}
		return v
	}, nil
}

// expression returns a function for an expression over measures, whose names have _ for other characters.
func expression(text string) (func(*run) float64, error) {
	env, used := map[string]any{}, map[string]string{}
	for _, name := range limit.Measures() {
		word := strings.Map(func(r rune) rune {
			if r == ' ' || r == '/' {
				return '_'
			}
			return r
		}, name)
		env[word] = 1.
		if strings.Contains(text, word) {
			used[word] = name
		}
	}
	program, err := expr.Compile(text, expr.Env(env), expr.AsFloat64())
	if err != nil {
		return nil, fmt.Errorf("%w; expected an expression over measures, with _ for spaces: ttft_p99 + 20 * tpot_p99",
			err)
	}
	if len(used) == 0 {
		return nil, fmt.Errorf("found no measure in %s; expected one such as ttft_p99", text)
	}
	return func(x *run) float64 {
		values := map[string]any{}
		for word, name := range used {
			values[word] = valueOf(x.measures, name)
		}
		if v, err := expr.Run(program, values); err == nil {
			if f, ok := v.(float64); ok && !math.IsInf(f, 0) {
				return f
			}
		}
		return math.NaN()
	}, nil
}

// newBound reads a limit of a measure, or of another number of the summary.
func newBound(text string) (b bound, err error) {
	var l limit.Limit
	name, rest := text, ""
	if i := strings.IndexAny(text, "<>"); i >= 0 {
		name, rest = text[:i], text[i:]
	}
	if err = l.UnmarshalText([]byte(strings.ReplaceAll(name, ".", " ") + rest)); err == nil {
		return bound{l.Bounds, l.String(), func(x *run) float64 { return valueOf(x.measures, l.Measure) }}, nil
	}
	var f limit.Figure
	if f.UnmarshalText([]byte(text)) != nil {
		return b, err
	}
	of, bad := figure(f.Name)
	if bad != nil {
		return b, fmt.Errorf("%w; and %w", err, bad)
	}
	return bound{f.Bounds, f.String(), of}, nil
}

// keeps returns the limits in words.
func (g *goal) keeps() string {
	return terminal.Join(len(g.keep), func(i int) string { return g.keep[i].words })
}

// names returns the objectives in words.
func (g *goal) names() []string {
	return terminal.Texts(len(g.objectives), func(i int) string { return g.objectives[i].name })
}

// score returns the score of a run. A run without a value of an objective violates everything.
func (g *goal) score(x *run) (s Score) {
	for i := range g.objectives {
		o := &g.objectives[i]
		if s.Values[i] = o.signed(o.of(x)); math.IsNaN(s.Values[i]) {
			return impossible
		}
	}
	for i := range g.keep {
		b := &g.keep[i]
		missed := b.of(x) - b.Bound
		if b.AtLeast {
			missed = -missed
		}
		if math.IsNaN(missed) {
			missed = max(math.Abs(b.Bound), 1)
		}
		s.Violation += max(0, missed) / max(math.Abs(b.Bound), 1e-9)
	}
	return s
}

// valueOf returns a measure, or NaN where the run has none.
func valueOf(a *report.Analysis, name string) float64 {
	if m, ok := report.MeasureNamed(name); ok {
		if e, ok := a.Estimate(m); ok {
			return e.Value
		}
	}
	return math.NaN()
}
