package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
)

// Sweep says which combinations of values of a scenario's fields are played.
type Sweep struct {
	// Variant is the scenario. Vary are fields with their values, such as workload.rate=10,20.
	Variant Variant
	Vary    []string
	// SLO are bounds in the form of record.ParseSLO.
	SLO          []string
	Replications int
	Division
	// Measures are the names of the measures in the table, empty for the default ones.
	Measures []string
	// Note is called with notes for the user.
	Note func(string)

	slo   record.SLO
	shown []report.Measure
	keys  Keys
}

// MaxReplications bounds how often a scenario is played, maxPoints the combinations of a sweep, and maxPaces the
// combinations whose trace's speed is noted.
const MaxReplications, maxPoints, maxPaces = 1000, 100_000, 20

// Swept are the points of a sweep.
type Swept struct {
	paths        []string
	points       []*Point
	shown        []report.Measure
	chosen       bool // the user has chosen the measures
	replications int
}

// Point is the result of one combination of values, a line of the results.
type Point struct {
	// Key is a hash of everything that the point depends on.
	Key      string            `json:"key"`
	Set      map[string]string `json:"set"`
	Requests int               `json:"requests"`
	// Failed counts requests that did not complete.
	Failed   int               `json:"failed"`
	Steady   bool              `json:"steady"`
	WarmUp   float64           `json:"warmUpSeconds"`
	Measures []report.Measured `json:"measures"`
	// StepTimes is the expected error of the step times, in words.
	StepTimes string `json:"stepTimes,omitempty"`
}

// Check returns how many combinations there are and the files that they read, or an error for a mistake.
func (c *Sweep) Check() (combinations int, inputs []string, err error) {
	out, _, inputs, err := c.prepare()
	if err != nil {
		return 0, nil, err
	}
	return len(out.points), inputs, nil
}

func (c *Sweep) prepare() (out *Swept, variants []Variant, inputs []string, err error) {
	if c.slo, err = record.ParseSLO(c.SLO); err != nil {
		return nil, nil, nil, exit.Errorf(exit.Usage, "--slo: %w", err)
	}
	if err := CheckReplications(1, c.Replications); err != nil {
		return nil, nil, nil, err
	}
	if c.shown, err = measuresNamed(c.Measures); err != nil {
		return nil, nil, nil, err
	}
	out = &Swept{replications: c.Replications, chosen: len(c.Measures) > 0}
	variants, inputs, err = c.points(out)
	return out, variants, inputs, cmp.Or(err, c.Division.check())
}

// Sweep plays a sweep. After an interruption it returns the points that were played, and an error.
func (p *Player) Sweep(ctx context.Context, c Sweep) (*Swept, error) {
	out, variants, inputs, err := c.prepare()
	if err != nil {
		return nil, err
	}
	results, err := c.open(inputs)
	if err != nil {
		return nil, err
	}
	done := p.Counter("combinations", len(out.points))
	err = Each(len(out.points), func(i int) error {
		defer done()
		if was := results.had[out.points[i].Key]; was != nil {
			out.points[i] = was
			return nil
		}
		if c.Collect {
			return nil
		}
		if err := out.points[i].play(ctx, p, variants[i], &c); err != nil {
			return err
		}
		p.row(variants[i].Name + ": " + out.points[i].words(out.needed()))
		return results.add(out.points[i])
	})
	err = errors.Join(err, results.close())
	all := len(out.points)
	if ctx.Err() != nil || c.Collect { // print the points that were played
		out.points = slices.DeleteFunc(out.points, func(p *Point) bool { return p.Requests == 0 })
	}
	if n := all - len(out.points); c.Collect && n > 0 {
		return out, exit.Errorf(exit.Failed, "%d of %s are not in %s; without --collect, windtunnel plays them", n,
			terminal.Counted(all, "combination"), c.Results)
	}
	if err != nil && (ctx.Err() == nil || len(out.points) == 0) {
		return nil, err
	}
	if c.Share.Of > 0 && err == nil {
		err = rows(c.file()+".parquet", out.columns(), out.rows)
	}
	if n := len(results.had); n > 0 && !c.Collect {
		c.Note(c.Results + " has points already, which were not played again")
	}
	return out, err
}

// CheckReplications returns an error unless least <= n <= MaxReplications.
func CheckReplications(least, n int) error {
	if n < least || n > MaxReplications {
		return exit.Errorf(exit.Usage, "--replications: found %d; expected a whole number, from %d to %d", n, least,
			MaxReplications)
	}
	return nil
}

// points fills in the points of the share, and returns their variants and the files that they read.
func (c *Sweep) points(out *Swept) (variants []Variant, inputs []string, err error) {
	var combinations [][]scenario.Setting
	if out.paths, combinations, err = c.combinations(); err != nil {
		return nil, nil, err
	}
	if i := -1; c.Share.Of > 0 {
		combinations = slices.DeleteFunc(combinations, func([]scenario.Setting) bool {
			i++
			return i%c.Share.Of != c.Share.Index
		})
	}
	variants, out.points = make([]Variant, len(combinations)), make([]*Point, len(combinations))
	judges := len(c.SLO) > 0
	inputs = []string{c.Variant.File}
	for i, settings := range combinations {
		variants[i] = c.Variant.With(settings...)
		s, err := variants[i].Scenario(0)
		if err != nil {
			return nil, nil, err
		}
		if pace := s.Paced(); pace != "" && i < maxPaces {
			c.Note(variants[i].Name + ": " + pace)
		}
		inputs, judges = append(inputs, s.Files()...), judges || s.Workload.Judges()
		if out.points[i], err = c.point(&variants[i], s, settings); err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(inputs)
	if out.shown = c.shown; len(c.Measures) == 0 && judges {
		judged, err := measuresNamed([]string{"goodput", "attainment"})
		if err != nil {
			return nil, nil, err
		}
		out.shown = append(out.shown, judged...)
	}
	return variants, slices.Compact(inputs), nil
}

// measuresNamed returns the measures with these names, or the default ones.
func measuresNamed(names []string) (out []report.Measure, err error) {
	if len(names) == 0 {
		names = []string{"requests/s", "output tokens/s", "ttft p50", "ttft p99", "tpot mean", "e2e p50", "e2e p99",
			"hit rate"}
	}
	for _, name := range names {
		m, ok := report.MeasureNamed(name)
		if !ok {
			all := report.Measures()
			return nil, exit.Errorf(exit.Usage, "--measure: found %q; expected one of %s", name,
				terminal.Join(len(all), func(i int) string { return all[i].Name }))
		}
		out = append(out, m)
	}
	return out, nil
}

// combinations returns all combinations. The last field changes fastest.
func (c *Sweep) combinations() (paths []string, out [][]scenario.Setting, err error) {
	out = [][]scenario.Setting{nil}
	for _, text := range c.Vary {
		s, err := scenario.ParseSetting(text)
		if err != nil {
			return nil, nil, exit.Errorf(exit.Usage, "--vary: %w", err)
		}
		if slices.Contains(paths, s.Path) {
			return nil, nil, exit.Errorf(exit.Usage, "--vary: %s is given twice; give all its values at once, such "+
				"as %s=1,2,3", s.Path, s.Path)
		}
		paths = append(paths, s.Path)
		values := SplitValues(s.Value)
		if len(out)*len(values) > maxPoints {
			return nil, nil, exit.Errorf(exit.Usage, "--vary: found more than %d combinations; expected at most as "+
				"many", maxPoints)
		}
		var next [][]scenario.Setting
		for _, before := range out {
			for _, v := range values {
				next = append(next, append(slices.Clone(before), scenario.Setting{Path: s.Path, Value: v,
					By: "--vary " + s.Path + "=" + v}))
			}
		}
		out = next
	}
	return paths, out, nil
}

// SplitValues splits at commas outside of brackets and quotes.
func SplitValues(text string) (out []string) {
	depth, quote, from := 0, rune(0), 0
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case strings.ContainsRune("([{", r):
			depth++
		case strings.ContainsRune(")]}", r):
			depth--
		case r == ',' && depth <= 0:
			out = append(out, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	return append(out, strings.TrimSpace(text[from:]))
}

// point returns a combination before it is played. Its key is a hash of all that its result depends on.
func (c *Sweep) point(v *Variant, s *scenario.Scenario, settings []scenario.Setting) (p *Point, err error) {
	p = &Point{Set: map[string]string{}}
	for _, s := range settings {
		p.Set[s.Path] = s.Value
	}
	p.Key, err = c.keys.Of(v, s, c.SLO, c.Replications)
	return p, err
}

func (p *Point) play(ctx context.Context, with *Player, v Variant, c *Sweep) error {
	runs := make(report.Runs, c.Replications)
	p.Steady = true
	for r := range runs {
		x, err := with.Variant(ctx, &v, r)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		runs[r] = x.Sample
		p.Requests += x.Summary.Requests
		p.Failed += x.Summary.Requests - x.Summary.Outcomes[record.Completed]
		p.Steady = p.Steady && x.Sample.Steady
		p.StepTimes = cmp.Or(p.StepTimes, report.StepErrorOf(x.Sample.Load).Text)
		p.WarmUp = max(p.WarmUp, report.Digits(x.Sample.Cut.Seconds()))
	}
	p.Measures = runs.Under(c.slo).All()
	return nil
}

// Sound reports whether every combination is steady and has completed all of its requests.
func (x *Swept) Sound() bool {
	return !slices.ContainsFunc(x.points, func(p *Point) bool { return p.Failed > 0 || !p.Steady })
}
