// Package tune searches the configuration of a scenario that is best for an objective, in virtual time.
//
// What varies are knobs: the weights of the picker's scorers, or fields of the scenario. A race (race.go) finds
// candidates: all of them meet the same requests, and bad ones leave after a ninth of a run. What is best in a
// search is partly best by luck, so the best three candidates and today's configuration play again with fresh seeds.
// Only these runs decide: paired by seed, with intervals that hold for all three together. Then each knob moves
// alone around the best candidate, which shows the knobs that matter.
package tune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/whatif"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/stats"
	"github.com/windtunnel/windtunnel/scenario"
)

// Options say what is searched.
type Options struct {
	Variant search.Variant
	// Vary are knobs in the form of ParseKnob, or Weights. Without any, Weights varies.
	Vary []string
	// Where are conditions over knobs that every candidate meets, such as "replicas * tensorParallelSize <= 16". A
	// field has the name at the end of its path, a scorer its name with _ for -.
	Where []string
	// Objective is a measure with a better direction. Keep are bounds of measures, such as "ttft.p95<=500ms".
	Objective string
	Keep      []string
	SLO       []string
	// Runs bounds the runs of the search, long and short ones alike; Time bounds its wall time, if it is above 0.
	Runs int
	Time time.Duration
	// Replications is the number of fresh seeds that decide, at least 3.
	Replications int
	// Indifference is the relative gain that nobody cares about.
	Indifference float64
	Seed         uint64
}

// Tuned is the result.
type Tuned struct {
	Scenario  string `json:"scenario"`
	Objective string `json:"objective"`
	// Runs is how many runs were played in the search and in all.
	Runs    int     `json:"runs"`
	AllRuns int     `json:"allRuns"`
	Seconds float64 `json:"seconds"`
	Knobs   []Knob  `json:"knobs"`
	// Today is the configuration as it is, and Best are the best candidates by the runs with fresh seeds.
	Today Finalist   `json:"today"`
	Best  []Finalist `json:"best"`
	// Better reports whether the first of Best is better than Today beyond chance and indifference.
	Better       bool          `json:"better"`
	Verdict      string        `json:"verdict"`
	Sensitivity  []Sensitivity `json:"sensitivity"`
	StepTimes    string        `json:"stepTimes,omitempty"`
	Interrupted  bool          `json:"interrupted,omitempty"`
	Replications int           `json:"replications"`
	// Configs are the EndpointPickerConfigs of the first of Best by pool, where scorers vary, and Settings its fields.
	Configs  map[string]string `json:"configs,omitempty"`
	Settings []string          `json:"settings,omitempty"`

	measure report.Measure
}

// Finalist is a candidate that played with fresh seeds.
type Finalist struct {
	Values map[string]string `json:"values,omitempty"` // by knob; empty for today's configuration
	Value  float64           `json:"value"`            // the objective, the mean over seeds
	Kept   bool              `json:"kept"`             // the bounds, on average
	// Gain is the relative gain over today's configuration, above 0 where it is better, with its interval.
	Gain float64 `json:"gain"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Measures show what differs: means over the seeds.
	Measures map[string]float64 `json:"measures"`

	c       *candidate
	values  []float64
	broken  float64
	results []result
}

// Sensitivity is how a knob changes the objective around the best candidate.
type Sensitivity struct {
	Knob   string   `json:"knob"`
	Values []string `json:"values"`
	// Changes are the relative changes of the objective at these values, above 0 where it is better.
	Changes []float64 `json:"changes"`
	// Matters reports whether any value changes the objective by more than indifference and chance.
	Matters bool `json:"matters"`
	// From and To bound the values around the best one that change nothing.
	From string `json:"from"`
	To   string `json:"to"`
}

// The number of finalists beside today's configuration, of values at which a knob is tried and of seeds that try it,
// and the seeds from which on runs decide.
const (
	finalists     = 3
	triedValues   = 5
	tryingSeeds   = 4
	decidingSeed  = 100_000
	fewestToJudge = 3
	mostRuns      = 100_000
)

// Weights stands for the weights of all scorers of the pickers.
const Weights = "weights"

// shownMeasures are measures in which finalists are described.
var shownMeasures = []string{"ttft p50", "ttft p99", "tpot mean", "e2e p99", "hit rate", "requests/s", "goodput",
	"attainment"}

// bound is a measure that a candidate has to keep.
type bound struct {
	text    string
	measure report.Measure
	most    bool
	value   float64
}

// result has the figures of one run.
type result struct {
	value    float64
	broken   float64
	measures map[string]float64
}

// tuner is a search that is under way.
type tuner struct {
	Options
	player   *search.Player
	ctx      context.Context
	base     *scenario.Scenario
	knobs    []Knob
	measure  report.Measure
	keep     []bound
	slo      record.SLO
	where    []*vm.Program
	began    time.Time
	runs     int
	stepText string
}

// Tune searches. After an interruption it returns the best so far, if whole runs were played, with an error.
func Tune(ctx context.Context, p *search.Player, o Options) (*Tuned, error) {
	t := &tuner{Options: o, player: p, ctx: ctx, began: time.Now()}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	r := &race{knobs: len(t.knobs), begins: max(2, min(firstGeneration, o.Runs*2/3)), decode: t.decode, play: t.race,
		more: t.more, indifference: o.Indifference, rng: rand.New(rand.NewPCG(o.Seed, 0x7475_6e65))}
	var first []*candidate
	if c := t.today(); c != nil {
		first = append(first, c)
	}
	err := r.search(first)
	searched := t.runs
	if err != nil && (ctx.Err() == nil || len(r.best) == 0) {
		return nil, err
	}
	if len(r.best) == 0 {
		return nil, exit.Errorf(exit.Usage, "no candidate played a whole run: found --runs %d and %s; expected more",
			o.Runs, o.Time)
	}
	out := &Tuned{Scenario: t.base.Name, Objective: t.measure.Name, Knobs: t.knobs, measure: t.measure, Runs: searched,
		Replications: o.Replications}
	if ctx.Err() != nil {
		return t.unfinished(out, r.best[0]), err
	}
	if err := t.decide(out, r.best); err != nil {
		return nil, err
	}
	if err := t.sensitivity(out); err != nil {
		return nil, err
	}
	out.AllRuns, out.Seconds, out.StepTimes = t.runs, time.Since(t.began).Seconds(), t.stepText
	return out, t.configured(out, out.Best[0].c)
}

// unfinished describes the best candidate of a search that was interrupted before fresh seeds played.
func (t *tuner) unfinished(out *Tuned, best *candidate) *Tuned {
	out.Interrupted, out.AllRuns, out.Seconds = true, t.runs, time.Since(t.began).Seconds()
	out.Verdict = "interrupted: the best so far, which no fresh seed has confirmed"
	out.Best = []Finalist{{Values: t.valuesOf(best), Value: t.signed(best.score.Value),
		Kept: best.score.Violation == 0}}
	if err := t.configured(out, best); err != nil {
		out.Configs = nil
	}
	return out
}

func (t *tuner) prepare() error {
	var err error
	if t.base, err = t.Variant.Scenario(0); err != nil {
		return err
	}
	if t.slo, err = record.ParseSLO(t.SLO); err != nil {
		return exit.Errorf(exit.Usage, "--slo: %w", err)
	}
	switch {
	case t.Runs < 1 || t.Runs > mostRuns:
		return exit.Errorf(exit.Usage, "--runs: found %d; expected a whole number, from 1 to %d", t.Runs, mostRuns)
	case !(t.Indifference >= 0 && t.Indifference < 1):
		return exit.Errorf(exit.Usage, "--indifference: found %v; expected a share below 100%%", t.Indifference)
	}
	if err := search.CheckReplications(fewestToJudge, t.Replications); err != nil {
		return err
	}
	if err := t.objective(); err != nil {
		return err
	}
	if len(t.Vary) == 0 {
		t.Vary = []string{Weights}
	}
	for _, text := range t.Vary {
		if text == Weights {
			if err := t.scorers(); err != nil {
				return err
			}
			continue
		}
		k, err := ParseKnob(text)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(t.knobs, func(other Knob) bool { return other.Name == k.Name }) {
			return exit.Errorf(exit.Usage, "--vary: %s is given twice", k.Name)
		}
		for _, at := range []float64{0, math.Nextafter(1, 0)} { // paths and types are checked before the first run
			if _, err := t.with([]Knob{k}, []string{k.text(at)}); err != nil {
				return fmt.Errorf("--vary %s: %w", text, err)
			}
		}
		t.knobs = append(t.knobs, k)
	}
	if len(t.knobs) == 0 || len(t.knobs) > mostKnobs {
		return exit.Errorf(exit.Usage, "found %d fields and scorers to vary; expected 1 to %d: the picker's scorers, "+
			"or --vary PATH=RANGE", len(t.knobs), mostKnobs)
	}
	return t.conditions()
}

// scorers makes a knob of each scorer's weight: 0, or 0.1 to 10.
func (t *tuner) scorers() error {
	for i := range t.base.Pools {
		p := &t.base.Pools[i]
		if p.EPP.Replicas == 0 {
			continue
		}
		text, err := whatif.Change(p.EPP.Config.File, string(p.EPP.Config.Text), nil, nil)
		if err != nil {
			return exit.With(exit.Input, err)
		}
		c := scenario.PickerConfig{File: "the picker's configuration", Text: []byte(text)}
		cfg, err := c.Read()
		if err != nil {
			return exit.With(exit.Input, err)
		}
		k, err := picker.New(cfg, plugins.Builtin(), picker.Options{})
		if err != nil {
			return exit.With(exit.Input, err)
		}
		scores := map[string]bool{}
		for _, pl := range k.Plugins() {
			_, scores[pl.Name()] = pl.(picker.Scorer)
		}
		for _, profile := range cfg.SchedulingProfiles {
			for _, ref := range profile.Plugins {
				if !scores[ref.PluginRef] {
					continue
				}
				weight := 1.0
				if ref.Weight != nil {
					weight = *ref.Weight
				}
				t.knobs = append(t.knobs, Knob{Name: profile.Name + "/" + ref.PluginRef, Low: 0.1, High: 10, Log: true,
					Zero: true, pool: i, scorer: true, variable: strings.ReplaceAll(ref.PluginRef, "-", "_"),
					Otherwise: strconv.FormatFloat(weight, 'f', -1, 64)})
			}
		}
	}
	return nil
}

// objective reads the objective and the bounds.
func (t *tuner) objective() error {
	named := func(flag, text string) (report.Measure, error) {
		m, ok := report.MeasureNamed(strings.Replace(text, ".", " ", 1))
		if !ok || !m.Judged() {
			var all []string
			for _, m := range report.Measures() {
				if m.Judged() {
					all = append(all, m.Name)
				}
			}
			return m, exit.Errorf(exit.Usage, "%s: found %q; expected one of %s", flag, text, strings.Join(all, ", "))
		}
		return m, nil
	}
	if t.Objective == "" {
		if t.Objective = "e2e.mean"; t.slo.Given() || t.base.Workload.Judges() {
			t.Objective = "goodput"
		}
	}
	var err error
	if t.measure, err = named("--objective", t.Objective); err != nil {
		return err
	}
	for _, text := range t.Keep {
		name, value, most := strings.Cut(text, "<=")
		if !most {
			var least bool
			if name, value, least = strings.Cut(text, ">="); !least {
				return exit.Errorf(exit.Usage, "--keep: found %q; expected a measure and its bound, such as "+
					"ttft.p95<=500ms or attainment>=99%%", text)
			}
		}
		b := bound{text: text, most: most}
		if b.measure, err = named("--keep", strings.TrimSpace(name)); err != nil {
			return err
		}
		if b.value, err = parseValue(strings.TrimSpace(value)); err != nil {
			return exit.Errorf(exit.Usage, "--keep: found %q; expected a bound such as 500ms, 99%% or 40", text)
		}
		t.keep = append(t.keep, b)
	}
	return nil
}

// parseValue reads a duration, a percentage or a number.
func parseValue(text string) (float64, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), nil
	}
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, errors.New("no number")
	}
	return v, err
}

// conditions compiles the conditions, and finds one point that meets them.
func (t *tuner) conditions() error {
	env := map[string]any{}
	for i := range t.knobs {
		k := &t.knobs[i]
		var zero any = 1.0
		if len(k.Values) > 0 {
			zero = typed(k.Values[0])
		}
		if _, twice := env[k.variable]; twice {
			k.variable = "" // two knobs of one name have none
			continue
		}
		env[k.variable] = zero
	}
	for _, text := range t.Where {
		program, err := expr.Compile(text, expr.Env(env), expr.AsBool())
		if err != nil {
			return exit.Errorf(exit.Usage, "--where: %w; expected a condition over %s", err,
				strings.Join(slices.Sorted(maps.Keys(env)), ", "))
		}
		t.where = append(t.where, program)
	}
	if len(t.where) == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(t.Seed, 1))
	at := make([]float64, len(t.knobs))
	for range 10_000 {
		for i := range at {
			at[i] = rng.Float64()
		}
		if _, ok := t.decode(at); ok {
			return nil
		}
	}
	return exit.Errorf(exit.Usage, "--where: none of 10,000 random candidates meets %s; expected conditions that some "+
		"candidates meet", strings.Join(t.Where, " and "))
}

// typed returns a number where the text is one.
func typed(text string) any {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v
	}
	return text
}

// decode returns the values at a point, false where they miss a condition or leave a profile without a scorer.
func (t *tuner) decode(at []float64) ([]string, bool) {
	values, env := make([]string, len(at)), map[string]any{}
	scored := map[string]bool{}
	for i := range at {
		k := &t.knobs[i]
		values[i] = k.text(at[i])
		if k.variable != "" {
			env[k.variable] = typed(values[i])
		}
		if k.scorer {
			profile := fmt.Sprint(k.pool, k.Name[:strings.IndexByte(k.Name, '/')])
			scored[profile] = scored[profile] || values[i] != "0"
		}
	}
	for _, any := range scored {
		if !any {
			return nil, false
		}
	}
	for _, program := range t.where {
		if ok, err := expr.Run(program, env); err != nil || ok != true {
			return nil, false
		}
	}
	return values, true
}

// today returns today's configuration as a candidate, nil where a value of it is unknown or outside its range.
func (t *tuner) today() *candidate {
	c := &candidate{}
	for i := range t.knobs {
		k := &t.knobs[i]
		at, ok := k.at(k.Otherwise)
		if !ok {
			return nil
		}
		c.at, c.values = append(c.at, at), append(c.values, k.Otherwise)
	}
	return c
}

// more reports whether the budget allows so many runs.
func (t *tuner) more(runs int) bool {
	return t.runs+runs <= t.Runs && (t.Time <= 0 || time.Since(t.began) < t.Time)
}

// with returns the scenario with these values, nil values for today's configuration.
func (t *tuner) with(knobs []Knob, values []string) (*scenario.Scenario, error) {
	var settings []scenario.Setting
	weights, off := map[int]map[string]float64{}, map[int][]string{}
	for i, v := range values {
		k := &knobs[i]
		switch {
		case !k.scorer:
			settings = append(settings, scenario.Setting{Path: k.Name, Value: v})
		case v == "0":
			off[k.pool] = append(off[k.pool], k.Name)
		default:
			w, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return nil, err
			}
			if weights[k.pool] == nil {
				weights[k.pool] = map[string]float64{}
			}
			weights[k.pool][k.Name] = w
		}
	}
	v := t.Variant.With(settings...)
	s, err := v.Scenario(0)
	if err != nil {
		return nil, err
	}
	for i := range s.Pools {
		if weights[i] == nil {
			continue
		}
		c := &s.Pools[i].EPP.Config
		text, err := whatif.Change(c.File, string(c.Text), weights[i], off[i])
		if err != nil {
			return nil, exit.With(exit.Input, err)
		}
		*c = scenario.PickerConfig{File: "the tuned configuration", Text: []byte(text)}
	}
	return s, nil
}

// play plays values for a share of a run, with a seed.
func (t *tuner) play(values []string, length float64, seed int) (result, error) {
	s, err := t.with(t.knobs, values)
	if err != nil {
		return result{}, err
	}
	number := s.Seed + uint64(seed)
	over := scenario.Overrides{Seed: &number}
	if n := int(length * float64(s.Workload.Requests)); length < 1 && n > 0 {
		over.Requests = &n
	}
	if err := s.Override(over); err != nil {
		return result{}, exit.With(exit.Usage, err)
	}
	x, err := t.player.Play(t.ctx, s, nil)
	if err != nil {
		return result{}, err
	}
	a := report.Runs{x.Sample}.Under(t.slo)
	out := result{measures: map[string]float64{}}
	if t.stepText == "" && seed >= decidingSeed && values == nil {
		t.stepText = report.StepErrorOf(x.Sample.Load).Text
	}
	out.value = valueOf(a, t.measure)
	for _, b := range t.keep {
		missed := valueOf(a, b.measure) - b.value
		if !b.most {
			missed = -missed
		}
		if math.IsNaN(missed) {
			missed = math.Abs(b.value)
		}
		out.broken += max(0, missed) / max(math.Abs(b.value), 1e-9)
	}
	for _, name := range shownMeasures {
		if m, ok := report.MeasureNamed(name); ok {
			if v := valueOf(a, m); !math.IsNaN(v) {
				out.measures[name] = report.Digits(v)
			}
		}
	}
	return out, nil
}

// valueOf returns a measure, or NaN where the runs have none.
func valueOf(a *report.Analysis, m report.Measure) float64 {
	e, ok := a.Estimate(m)
	if !ok {
		return math.NaN()
	}
	return e.Value
}

// signed returns a score as the measure's value, or the reverse: lower scores are better.
func (t *tuner) signed(v float64) float64 {
	if t.measure.HigherIsBetter {
		return -v
	}
	return v
}

// race plays candidates with the seed of a generation.
func (t *tuner) race(list []*candidate, length float64, generation int) ([]Score, error) {
	out := make([]Score, len(list))
	what := fmt.Sprintf("candidates of generation %d, %.0f %% of a run", generation+1, 100*length)
	done := t.player.Counter(what, len(list))
	err := search.Each(len(list), func(i int) error {
		defer done()
		x, err := t.play(list[i].values, length, generation)
		if err != nil {
			if exit.Of(err) != exit.Input && exit.Of(err) != exit.Usage {
				return err
			}
			out[i] = Score{Violation: math.Inf(1), Value: math.Inf(1)} // these values together are no scenario
			return nil
		}
		out[i] = Score{x.broken, t.signed(x.value)}
		return nil
	})
	t.runs += len(list)
	if err == nil && length == rungs[0] && generation == 0 && !slices.ContainsFunc(out, func(s Score) bool {
		return !math.IsInf(s.Violation, 1)
	}) {
		_, err = t.play(list[0].values, length, generation)
		if err == nil {
			err = exit.Errorf(exit.Input, "no run has a value of %s; choose another --objective", t.measure.Name)
		}
	}
	return out, err
}

// valuesOf returns a candidate's values by knob.
func (t *tuner) valuesOf(c *candidate) map[string]string {
	out := map[string]string{}
	for i, v := range c.values {
		out[t.knobs[i].Name] = v
	}
	return out
}

// decide plays the best candidates and today's configuration with fresh seeds.
func (t *tuner) decide(out *Tuned, best []*candidate) error {
	list := []Finalist{{}}
	today := t.today()
	for _, c := range best {
		if len(list) <= finalists && !math.IsInf(c.score.Violation, 1) && (today == nil || c.key() != today.key()) {
			list = append(list, Finalist{c: c, Values: t.valuesOf(c)})
		}
	}
	if err := t.replicate(list, t.Replications, "runs that decide"); err != nil {
		return err
	}
	out.Today = list[0]
	out.Best = list[1:]
	if len(out.Best) == 0 { // nothing else was ever valid
		out.Best = []Finalist{{c: today, Values: t.valuesOf(today), Value: list[0].Value, Kept: list[0].Kept,
			Measures: list[0].Measures, values: list[0].values}}
	}
	for i := range out.Best {
		out.Best[i].against(&out.Today, t.measure.HigherIsBetter, len(out.Best))
	}
	slices.SortStableFunc(out.Best, func(a, b Finalist) int {
		return Score{a.broken, -a.Gain}.compare(Score{b.broken, -b.Gain})
	})
	t.verdict(out)
	return nil
}

// replicate plays finalists with fresh seeds and sets their means.
func (t *tuner) replicate(list []Finalist, seeds int, what string) error {
	for i := range list {
		list[i].results = make([]result, seeds)
	}
	done := t.player.Counter(what, len(list)*seeds)
	err := search.Each(len(list)*seeds, func(n int) (err error) {
		defer done()
		f := &list[n/seeds]
		var values []string
		if f.c != nil {
			values = f.c.values
		}
		f.results[n%seeds], err = t.play(values, 1, decidingSeed+n%seeds)
		return err
	})
	t.runs += len(list) * seeds
	for i := range list {
		f := &list[i]
		f.Measures, f.values, f.broken = map[string]float64{}, nil, 0
		for _, x := range f.results {
			f.values = append(f.values, x.value)
			f.broken += x.broken / float64(seeds)
			for name, v := range x.measures {
				f.Measures[name] += v / float64(seeds)
			}
		}
		f.Value, f.Kept = report.Digits(stats.Mean(f.values)), f.broken == 0
	}
	return err
}

// against computes the gain over another finalist, paired by seed. The intervals of so many comparisons hold together.
func (f *Finalist) against(base *Finalist, higherIsBetter bool, comparisons int) {
	n := len(f.values)
	gains := make([]float64, n)
	scale := math.Abs(stats.Mean(base.values))
	for i := range gains {
		if gains[i] = (base.values[i] - f.values[i]) / scale; higherIsBetter {
			gains[i] = -gains[i]
		}
	}
	mean, squares := stats.Mean(gains), 0.0
	for _, g := range gains {
		squares += (g - mean) * (g - mean)
	}
	half := stats.T(1-(1-stats.Confidence)/float64(comparisons), n-1) * math.Sqrt(squares/float64(n-1)/float64(n))
	f.Gain, f.Low, f.High = report.Digits(mean), report.Digits(mean-half), report.Digits(mean+half)
}

// verdict sets the verdict by the best finalist.
func (t *tuner) verdict(out *Tuned) {
	best := &out.Best[0]
	switch {
	case best.Kept && !out.Today.Kept:
		out.Better = true
		out.Verdict = "the best candidate keeps " + strings.Join(t.Keep, ", ") + ", which today's configuration misses"
	case !best.Kept:
		out.Verdict = "no candidate keeps " + strings.Join(t.Keep, ", ")
	case best.Low > 0 && best.Gain > t.Indifference:
		out.Better = true
		out.Verdict = fmt.Sprintf("the best candidate is better than today's configuration by %s in %s (%s to %s)",
			share(best.Gain), t.measure.Name, share(best.Low), share(best.High))
	case best.High <= t.Indifference || best.Gain <= t.Indifference:
		out.Verdict = fmt.Sprintf("no configuration is better than yours by more than %s in %s", share(t.Indifference),
			t.measure.Name)
	default:
		out.Verdict = fmt.Sprintf("no configuration is better than yours beyond chance in %s: the best has %s (%s to "+
			"%s); more --replications narrow that", t.measure.Name, share(best.Gain), share(best.Low), share(best.High))
	}
}

// share prints a relative change.
func share(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

// sensitivity moves each knob alone around the best candidate.
func (t *tuner) sensitivity(out *Tuned) error {
	best := out.Best[0]
	list := []Finalist{{c: best.c}}
	type place struct{ knob, value int }
	var places []place
	for i := range t.knobs {
		k := &t.knobs[i]
		s := Sensitivity{Knob: k.Name}
		for j := range triedValues {
			at := slices.Clone(best.c.at)
			at[i] = (float64(j) + 0.5) / triedValues
			values, ok := t.decode(at)
			if !ok || slices.Contains(s.Values, values[i]) {
				continue
			}
			if _, err := t.with(t.knobs, values); err != nil {
				continue // this value is none with the others
			}
			places = append(places, place{i, len(s.Values)})
			s.Values, s.Changes = append(s.Values, values[i]), append(s.Changes, 0)
			list = append(list, Finalist{c: &candidate{at: at, values: values}})
		}
		out.Sensitivity = append(out.Sensitivity, s)
	}
	if err := t.replicate(list, tryingSeeds, "runs around the best"); err != nil {
		return err
	}
	for n, p := range places {
		f := &list[1+n]
		f.against(&list[0], t.measure.HigherIsBetter, len(places))
		s := &out.Sensitivity[p.knob]
		s.Changes[p.value] = f.Gain
		unlike := math.Abs(f.Gain) > t.Indifference && f.Low*f.High > 0 || !f.Kept
		s.Matters = s.Matters || unlike
		if !unlike {
			s.To = s.Values[p.value]
			if s.From == "" {
				s.From = s.To
			}
		}
	}
	return nil
}

// configured sets the configurations and fields of a candidate.
func (t *tuner) configured(out *Tuned, c *candidate) error {
	s, err := t.with(t.knobs, c.values)
	if err != nil {
		return err
	}
	for i := range t.knobs {
		k := &t.knobs[i]
		if !k.scorer {
			out.Settings = append(out.Settings, k.label(c.values[i]))
			continue
		}
		if out.Configs == nil {
			out.Configs = map[string]string{}
		}
		out.Configs[s.Pools[k.pool].Name] = string(s.Pools[k.pool].EPP.Config.Text)
	}
	return nil
}
