package tune

import (
	"math"
	"strings"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/comparison"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/limit"
)

// goal is an objective with the limits that a candidate keeps.
type goal struct {
	measure report.Measure
	keep    []limit.Limit
	slo     record.SLO
}

// newGoal reads an objective, "" for the default one of a scenario, and limits.
func newGoal(s *scenario.Scenario, objective string, keep, slo []string) (g goal, err error) {
	if g.slo, err = record.ParseSLO(slo); err != nil {
		return g, exit.Errorf(exit.Usage, "--slo: %w", err)
	}
	if objective == "" {
		if objective = "e2e mean"; g.slo.Given() || s.Workload.Judges() {
			objective = "goodput"
		}
	}
	names, err := comparison.Named([]string{objective})
	if err != nil {
		return g, exit.Errorf(exit.Usage, "--objective: %w", err)
	}
	g.measure, _ = report.MeasureNamed(names[0])
	for _, text := range keep {
		var l limit.Limit
		name, rest := text, ""
		if i := strings.IndexAny(text, "<>"); i >= 0 {
			name, rest = text[:i], text[i:]
		}
		if err := l.UnmarshalText([]byte(strings.ReplaceAll(name, ".", " ") + rest)); err != nil {
			return g, exit.Errorf(exit.Usage, "--keep: %w", err)
		}
		g.keep = append(g.keep, l)
	}
	return g, nil
}

// keeps returns the limits in words.
func (g *goal) keeps() string {
	words := make([]string, len(g.keep))
	for i := range g.keep {
		words[i] = g.keep[i].String()
	}
	return strings.Join(words, ", ")
}

// score returns the score of a run. A run without a value of the objective violates everything.
func (g *goal) score(a *report.Analysis) (s Score) {
	if s.Value = g.signed(valueOf(a, g.measure.Name)); math.IsNaN(s.Value) {
		return Score{Violation: math.Inf(1)}
	}
	for _, l := range g.keep {
		missed := valueOf(a, l.Measure) - l.Bound
		if l.AtLeast {
			missed = -missed
		}
		if math.IsNaN(missed) {
			missed = l.Bound
		}
		s.Violation += max(0, missed) / max(l.Bound, 1e-9)
	}
	return s
}

// signed turns the objective's value into a score's, or back: a lower score is better.
func (g *goal) signed(v float64) float64 {
	if g.measure.HigherIsBetter {
		return -v
	}
	return v
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
