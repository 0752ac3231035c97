package tune

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/stats"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Tuned is the result.
type Tuned struct {
	Scenario   string   `json:"scenario"`
	Others     []string `json:"otherScenarios,omitempty"`
	Objectives []string `json:"objectives"`
	// Runs is how many runs were played in the search and in all.
	Runs    int    `json:"runs"`
	AllRuns int    `json:"allRuns"`
	Knobs   []Knob `json:"knobs"`
	// Today is the configuration as it is, and Best are the best candidates by the runs with fresh seeds: with two
	// objectives the front, by the first one. Knee is the index in Best of the one to take.
	Today Finalist   `json:"today"`
	Best  []Finalist `json:"best"`
	Knee  int        `json:"knee"`
	// Better reports whether the knee of Best is better than Today beyond chance and indifference.
	Better      bool          `json:"better"`
	Verdict     string        `json:"verdict"`
	Sensitivity []Sensitivity `json:"sensitivity"`
	Pairs       []Pair        `json:"pairs,omitempty"`
	StepTimes   string        `json:"stepTimes,omitempty"`
	// Doubt says how the expected error of the step times changes the verdict, and is empty where it does not.
	Doubt        string `json:"doubt,omitempty"`
	Interrupted  bool   `json:"interrupted,omitempty"`
	Replications int    `json:"replications"`
	// Candidates played whole runs in the search, the best first.
	Candidates []Candidate `json:"candidates"`
	// Configs are the EndpointPickerConfigs of the knee by pool, where the picker varies, and Settings its fields.
	Configs  map[string]string `json:"configs,omitempty"`
	Settings []string          `json:"settings,omitempty"`
	// Elsewhere says, for each pool in Configs, which requests a better configuration sends to other servers, and why.
	Elsewhere []Elsewhere `json:"elsewhere,omitempty"`

	t *tuner
}

// Candidate is a configuration of the search, with the values of the objectives in its whole run.
type Candidate struct {
	Values  map[string]string `json:"values"` // by knob
	Results []float64         `json:"results"`
	Kept    bool              `json:"kept"` // the limits
}

// Finalist is a candidate that played with fresh seeds.
type Finalist struct {
	Values  map[string]string `json:"values,omitempty"` // by knob; empty for today's configuration
	Results []Result          `json:"results"`          // by objective
	Kept    bool              `json:"kept"`             // the limits, with each seed
	// Measures show the differences: means over the seeds. With queueAt before its name, each server has its own queue.
	Measures map[string]float64 `json:"measures"`

	c      *candidate
	scores []Score // by seed
	mean   Score
}

// Result is the value of an objective, the mean over seeds, and the relative gain over today's configuration, above 0
// where it is better, with its interval.
type Result struct {
	Value float64 `json:"value"`
	Gain  float64 `json:"gain"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Sensitivity is how a knob changes an objective around the best candidate.
type Sensitivity struct {
	Knob      string   `json:"knob"`
	Objective string   `json:"objective"`
	Values    []string `json:"values"`
	// Changes are the relative changes of the objective at these values, above 0 where it is better.
	Changes []float64 `json:"changes"`
	// Matters reports whether any value changes the objective by more than indifference and chance, or misses a limit.
	Matters bool `json:"matters"`
}

// Pair is two knobs that depend on each other: moved together, they change the objective otherwise than the sum of both
// moves alone. Together is this difference, relative to the best candidate, with its interval.
type Pair struct {
	Knobs    [2]string `json:"knobs"`
	Values   [2]string `json:"values"`
	Together float64   `json:"together"`
	Low      float64   `json:"low"`
	High     float64   `json:"high"`
}

// The number of finalists beside today's configuration, with one objective and with two, of values at which a knob is
// tried and of seeds that try it, for a third of a run, or for leastTried requests. Runs that decide have seeds from
// decidingSeed on.
const (
	finalists, mostFront = 3, 6
	triedValues          = 5
	tryingSeeds          = 4
	triedLength          = 1. / 3
	leastTried           = 2000
	mostPaired           = 4 // knobs whose pairs are tried
	decidingSeed         = 100_000
)

// shownMeasures are measures in which finalists are described.
var shownMeasures = []string{"ttft p50", "ttft p99", "tpot mean", "e2e p99", "hit rate", "requests/s", "goodput",
	"attainment", "balance", "balance prefill", "balance decode", "queue mean", "queue mean prefill",
	"queue mean decode", "kv use mean", "kv use mean prefill", "kv use mean decode", "preemptions"}

// decide plays the best candidates and today's configuration with fresh seeds, and then moves the knobs around the
// best.
func (t *tuner) decide(out *Tuned, best []*candidate) error {
	most := finalists
	if len(t.objectives) > 1 {
		best, most = front(best), mostFront
		byFront(best)
	}
	list := []Finalist{{}}
	today := t.today()
	for _, c := range best {
		if len(list) <= most && (today == nil || c.key() != today.key()) {
			list = append(list, Finalist{c: c, Values: t.named(c)})
		}
	}
	steps, err := t.replicate(list, job{length: 1, seed: decidingSeed}, t.Replications, "runs that decide")
	if err != nil {
		return err
	}
	if !list[0].mean.possible() {
		return exit.Errorf(exit.Input, "today's configuration has no value of %s; choose another --objective",
			strings.Join(t.names(), " and "))
	}
	for i := range list {
		list[i].against(&list[0], max(1, len(list)-1)*len(t.objectives))
	}
	out.StepTimes, out.Today, out.Best = steps.Text, list[0], list[1:]
	if len(out.Best) == 0 { // today's configuration is the only candidate
		same := out.Today
		same.c, same.Values = best[0], t.named(best[0])
		out.Best = []Finalist{same}
	}
	t.rank(out)
	t.verdict(out)
	if err := t.sensitivity(out); err != nil {
		return err
	}
	return t.doubt(out, &steps)
}

// rank sorts the finalists by the runs that decide. With two objectives, only the front remains.
func (t *tuner) rank(out *Tuned) {
	sort.SliceStable(out.Best, func(i, j int) bool { return out.Best[i].mean.compare(out.Best[j].mean) < 0 })
	if len(t.objectives) == 1 {
		return
	}
	again := make([]*candidate, len(out.Best))
	for i := range again {
		again[i] = &candidate{score: out.Best[i].mean}
	}
	kept := front(again)
	at := again[slices.Index(again, kept[knee(kept)])]
	var list []Finalist
	for i, c := range again {
		if c == at {
			out.Knee = len(list)
		}
		if slices.Contains(kept, c) {
			list = append(list, out.Best[i])
		}
	}
	out.Best = list
}

// replicate plays finalists with fresh seeds, as a job says, and sets their means. It returns the expected error of the
// step times of the first one.
func (t *tuner) replicate(list []Finalist, of job, seeds int, what string) (steps report.StepError, err error) {
	jobs := make([]job, len(list)*seeds)
	for n := range jobs {
		j := of
		if j.seed += n % seeds; list[n/seeds].c != nil {
			j.values = list[n/seeds].c.values
		}
		jobs[n] = j
	}
	played, refused, err := t.playAll(jobs, what)
	if err == nil {
		err = refused[0]
	}
	if err != nil {
		return steps, err
	}
	for i := range list {
		f := &list[i]
		f.Measures, f.scores, f.mean = map[string]float64{}, make([]Score, seeds), Score{}
		for k, x := range played[i*seeds : (i+1)*seeds] {
			f.scores[k] = x.Score
			f.mean.Violation += x.Violation / float64(seeds)
			for o, v := range x.Values {
				f.mean.Values[o] += v / float64(seeds)
			}
			for name, v := range x.Measures {
				f.Measures[name] += v / float64(seeds)
			}
		}
		for name, v := range f.Measures {
			f.Measures[name] = report.Digits(v)
		}
		f.Results, f.Kept = t.results(&f.mean), f.mean.Violation == 0
	}
	return played[0].StepTimes, nil
}

// results returns the values of the objectives, without gains.
func (t *tuner) results(s *Score) (out []Result) {
	for _, v := range t.values(s) {
		out = append(out, Result{Value: v})
	}
	return out
}

// values returns the values of the objectives.
func (g *goal) values(s *Score) (out []float64) {
	for i := range g.objectives {
		out = append(out, report.Digits(g.objectives[i].signed(s.Values[i])))
	}
	return out
}

// against computes the gains over another finalist, paired by seed. The intervals of so many comparisons hold together.
// A finalist without a value loses everything.
func (f *Finalist) against(base *Finalist, comparisons int) {
	for o := range f.Results {
		r := &f.Results[o]
		if !f.mean.possible() {
			r.Gain, r.Low, r.High = -1, -1, -1
			continue
		}
		gains := make([]float64, len(f.scores))
		for i := range gains {
			gains[i] = base.scores[i].Values[o] - f.scores[i].Values[o]
		}
		r.Gain, r.Low, r.High = relative(gains, base.mean.Values[o], comparisons)
	}
}

// relative returns the mean of differences relative to a value, and its interval. The intervals of so many comparisons
// hold together.
func relative(differences []float64, to float64, comparisons int) (mean, low, high float64) {
	n := float64(len(differences))
	mean, squares := stats.Mean(differences), 0.0
	for _, d := range differences {
		squares += (d - mean) * (d - mean)
	}
	half := stats.T(1-(1-stats.Confidence)/float64(comparisons), len(differences)-1) * math.Sqrt(squares/(n-1)/n)
	to = math.Abs(to)
	if to == 0 {
		to = 1
	}
	return report.Digits(mean / to), report.Digits((mean - half) / to), report.Digits((mean + half) / to)
}

// verdict sets the verdict by the best finalist.
func (t *tuner) verdict(out *Tuned) {
	best := &out.Best[out.Knee]
	first := best.Results[0]
	switch in := strings.Join(t.names(), " and "); {
	case best.Kept && !out.Today.Kept:
		out.Better = true
		out.Verdict = "the best candidate keeps " + t.keeps() + ", and today's configuration does not"
	case !best.Kept:
		out.Verdict = "no candidate keeps " + t.keeps()
	case len(t.objectives) > 1:
		t.verdictOfFront(out)
	case t.better(best):
		out.Better = true
		out.Verdict = fmt.Sprintf("the best candidate is better than today's configuration by %s in %s", first.text(),
			in)
	case first.High <= t.Indifference:
		out.Verdict = fmt.Sprintf("no configuration is better than yours by more than %s in %s",
			share(t.Indifference), in)
	default:
		out.Verdict = fmt.Sprintf("no configuration is better than yours beyond chance and %s in %s: the best "+
			"gains %s", share(t.Indifference), in, first.text())
	}
}

// better reports whether a finalist is better than today's configuration in an objective, beyond chance and
// indifference, and in none worse by more than indifference.
func (t *tuner) better(f *Finalist) bool {
	return slices.ContainsFunc(f.Results, func(r Result) bool { return r.Low > 0 && r.Gain > t.Indifference }) &&
		!slices.ContainsFunc(f.Results, func(r Result) bool { return r.Gain < -t.Indifference })
}

// verdictOfFront sets the verdict of two objectives. The knee may be worse than today's configuration in one of them;
// then the member of the front that is better counts.
func (t *tuner) verdictOfFront(out *Tuned) {
	if !t.better(&out.Best[out.Knee]) {
		if i := slices.IndexFunc(out.Best, func(f Finalist) bool { return f.Kept && t.better(&f) }); i >= 0 {
			out.Knee = i
		}
	}
	f := &out.Best[out.Knee]
	if out.Better = t.better(f); !out.Better {
		out.Verdict = fmt.Sprintf("no configuration is better than yours beyond chance and %s in one of %s and as "+
			"good in the other", share(t.Indifference), strings.Join(t.names(), " and "))
		return
	}
	gains := terminal.Join(len(f.Results), func(i int) string {
		return f.Results[i].text() + " in " + t.objectives[i].name
	})
	out.Verdict = fmt.Sprintf("candidate %d is better than today's configuration: %s", out.Knee+1, gains)
}

// text returns the gain with its interval.
func (r *Result) text() string {
	return fmt.Sprintf("%s (%s to %s)", share(r.Gain), share(r.Low), share(r.High))
}

// share prints a relative change.
func share(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
