package tune

import (
	"fmt"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/stats"
)

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
	Kept   bool              `json:"kept"`             // the limits, with each seed
	// Gain is the relative gain over today's configuration, above 0 where it is better, with its interval.
	Gain float64 `json:"gain"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Measures show the differences: means over the seeds.
	Measures map[string]float64 `json:"measures"`

	c      *candidate
	scores []Score // by seed
	broken float64 // the mean violation
}

// Sensitivity is how a knob changes the objective around the best candidate.
type Sensitivity struct {
	Knob   string   `json:"knob"`
	Values []string `json:"values"`
	// Changes are the relative changes of the objective at these values, above 0 where it is better.
	Changes []float64 `json:"changes"`
	// Matters reports whether any value changes the objective by more than indifference and chance, or misses a limit.
	Matters bool `json:"matters"`
}

// The number of finalists beside today's configuration, of values at which a knob is tried and of seeds that try it.
// Runs that decide have seeds from decidingSeed on.
const (
	finalists    = 3
	triedValues  = 5
	tryingSeeds  = 4
	decidingSeed = 100_000
)

// shownMeasures are measures in which finalists are described.
var shownMeasures = []string{"ttft p50", "ttft p99", "tpot mean", "e2e p99", "hit rate", "requests/s", "goodput",
	"attainment"}

// decide plays the best candidates and today's configuration with fresh seeds.
func (t *tuner) decide(out *Tuned, best []*candidate) error {
	list := []Finalist{{}}
	today := t.today()
	for _, c := range best {
		if len(list) <= finalists && (today == nil || c.key() != today.key()) {
			list = append(list, Finalist{c: c, Values: t.named(c)})
		}
	}
	var err error
	if out.StepTimes, err = t.replicate(list, t.Replications, "runs that decide"); err != nil {
		return err
	}
	if !(Score{Violation: list[0].broken}).possible() {
		return exit.Errorf(exit.Input, "today's configuration has no value of %s; choose another --objective",
			t.measure.Name)
	}
	out.Today, out.Best = list[0], list[1:]
	if len(out.Best) == 0 { // today's configuration is the only candidate
		same := out.Today
		same.c, same.Values = best[0], t.named(best[0])
		out.Best = []Finalist{same}
	}
	for i := range out.Best {
		out.Best[i].against(&out.Today, len(out.Best))
	}
	slices.SortStableFunc(out.Best, func(a, b Finalist) int {
		return Score{a.broken, -a.Gain}.compare(Score{b.broken, -b.Gain})
	})
	t.verdict(out)
	return nil
}

// replicate plays finalists with fresh seeds and sets their means. It returns the expected error of the step times of
// the first one, in words.
func (t *tuner) replicate(list []Finalist, seeds int, what string) (stepTimes string, err error) {
	for i := range list {
		list[i].scores = make([]Score, seeds)
	}
	runs := make([]*search.Result, len(list)*seeds)
	done := t.player.Counter(what, len(runs))
	err = search.Each(len(runs), func(n int) (err error) {
		defer done()
		var values []string
		if c := list[n/seeds].c; c != nil {
			values = c.values
		}
		runs[n], err = t.play(values, 1, decidingSeed+n%seeds)
		return err
	})
	t.runs += len(runs)
	if err != nil {
		return "", err
	}
	for i := range list {
		f := &list[i]
		f.Measures = map[string]float64{}
		var values []float64
		for k, x := range runs[i*seeds : (i+1)*seeds] {
			a := t.measured(x)
			f.scores[k] = t.score(a)
			f.broken += f.scores[k].Violation / float64(seeds)
			values = append(values, t.signed(f.scores[k].Value))
			for _, name := range shownMeasures {
				if v := valueOf(a, name); !math.IsNaN(v) {
					f.Measures[name] += v / float64(seeds)
				}
			}
		}
		for name, v := range f.Measures {
			f.Measures[name] = report.Digits(v)
		}
		f.Value, f.Kept = report.Digits(stats.Mean(values)), f.broken == 0
	}
	return report.StepErrorOf(runs[0].Sample.Load).Text, nil
}

// against computes the gain over another finalist, paired by seed. The intervals of so many comparisons hold together.
// A finalist without a value loses everything.
func (f *Finalist) against(base *Finalist, comparisons int) {
	if !(Score{Violation: f.broken}).possible() {
		f.Gain, f.Low, f.High = -1, -1, -1
		return
	}
	n := float64(len(f.scores))
	scale := 0.0
	for _, s := range base.scores {
		scale += s.Value / n
	}
	gains := make([]float64, len(f.scores))
	for i := range gains {
		gains[i] = (base.scores[i].Value - f.scores[i].Value) / math.Abs(scale)
	}
	mean, squares := stats.Mean(gains), 0.0
	for _, g := range gains {
		squares += (g - mean) * (g - mean)
	}
	half := stats.T(1-(1-stats.Confidence)/float64(comparisons), len(gains)-1) * math.Sqrt(squares/(n-1)/n)
	f.Gain, f.Low, f.High = report.Digits(mean), report.Digits(mean-half), report.Digits(mean+half)
}

// verdict sets the verdict by the best finalist.
func (t *tuner) verdict(out *Tuned) {
	best := &out.Best[0]
	switch in := t.measure.Name; {
	case best.Kept && !out.Today.Kept:
		out.Better = true
		out.Verdict = "the best candidate keeps " + t.keeps() + ", and today's configuration does not"
	case !best.Kept:
		out.Verdict = "no candidate keeps " + t.keeps()
	case best.Low > 0 && best.Gain > t.Indifference:
		out.Better = true
		out.Verdict = fmt.Sprintf("the best candidate is better than today's configuration by %s in %s (%s to %s)",
			share(best.Gain), in, share(best.Low), share(best.High))
	case best.High <= t.Indifference:
		out.Verdict = fmt.Sprintf("no configuration is better than yours by more than %s in %s",
			share(t.Indifference), in)
	default:
		out.Verdict = fmt.Sprintf("no configuration is better than yours beyond chance and %s in %s: the best "+
			"gains %s (%s to %s)", share(t.Indifference), in, share(best.Gain), share(best.Low), share(best.High))
	}
}

// share prints a relative change.
func share(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

// sensitivity moves each knob alone around the best candidate.
func (t *tuner) sensitivity(out *Tuned) error {
	best := out.Best[0].c
	list := []Finalist{{c: best}}
	var knobs []int // of the others in the list
	for i := range t.knobs {
		s := Sensitivity{Knob: t.knobs[i].Name}
		for j := range triedValues {
			at := slices.Clone(best.at)
			at[i] = (float64(j) + 0.5) / triedValues
			values, ok := t.decode(at)
			if !ok || slices.Contains(s.Values, values[i]) {
				continue
			}
			if _, err := t.scenario(values); err != nil {
				continue // no scenario, with the values of the other knobs
			}
			s.Values = append(s.Values, values[i])
			knobs, list = append(knobs, i), append(list, Finalist{c: &candidate{at: at, values: values}})
		}
		out.Sensitivity = append(out.Sensitivity, s)
	}
	if _, err := t.replicate(list, tryingSeeds, "runs around the best"); err != nil {
		out.Sensitivity = nil
		return err
	}
	for n, knob := range knobs {
		f, s := &list[1+n], &out.Sensitivity[knob]
		f.against(&list[0], len(knobs))
		s.Changes = append(s.Changes, f.Gain)
		s.Matters = s.Matters || math.Abs(f.Gain) > t.Indifference && f.Low*f.High > 0 || !f.Kept
	}
	return nil
}
