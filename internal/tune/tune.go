// Package tune searches the configuration of a scenario that is best for an objective, in virtual time.
//
// What varies are knobs: the weights of the picker's scorers, or fields of the scenario. A race (race.go) finds
// candidates: all of them meet the same requests, and bad ones leave after a ninth of a run. What is best in a
// search is partly best by luck, so the best three candidates and today's configuration play again with fresh seeds.
// Only these runs decide: paired by seed, with intervals that hold for all three together. Then each knob moves
// alone around the best candidate, which shows the knobs that matter.
package tune

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
)

// Options say what is searched.
type Options struct {
	// Variants are scenarios of the same pools. What varies is the same in all, and each candidate plays them all.
	Variants []search.Variant
	// Combine says how the scores of several scenarios become one: mean, worst, or weights separated by commas.
	Combine string
	// HoldOut is the share of each trace, its end, that only the runs that decide play. 0 holds nothing back.
	HoldOut float64
	// Division is the directory that runs are kept in, whose runs are not played again, and the part of this process.
	search.Division
	// Vary are knobs in the form of ParseKnob, or Weights. Without any, Weights varies.
	Vary []string
	// Where are conditions over knobs that every candidate meets, such as "replicas * tensorParallelSize <= 16". A
	// field has the name at the end of its path, a scorer its name with _ for -.
	Where []string
	// Objectives are one or two measures with a better direction, or min: or max: before a number of the summary or an
	// expression. Keep are bounds of measures or of other numbers, such as "ttft.p95<=500ms".
	Objectives []string
	Keep       []string
	SLO        []string
	// Runs bounds the runs of the search, long and short ones alike; Time bounds its wall time, if it is above 0.
	Runs int
	Time time.Duration
	// Replications is the number of fresh seeds that decide, at least 3.
	Replications int
	// Indifference is the relative gain that nobody cares about.
	Indifference float64
	Seed         uint64
}

// mostRuns bounds the runs of a search, and fewestToJudge the seeds that decide.
const mostRuns, fewestToJudge = 100_000, 3

// tuner is a search that is under way.
type tuner struct {
	Options
	*space
	goal
	player  *search.Player
	ctx     context.Context
	began   time.Time
	weights []float64 // of the scenarios, summing to 1; nil for the worst one
	store   *search.Store
	keys    []string // hashes of everything that all runs of a scenario depend on
	runs    int
}

// Tune searches. After an interruption it returns the best so far, if whole runs were played, with an error.
func Tune(ctx context.Context, p *search.Player, o Options) (*Tuned, error) {
	t, err := prepare(o)
	if err != nil {
		return nil, err
	}
	t.ctx, t.player, t.began = ctx, p, time.Now()
	if out, err := t.answered(); out != nil || err != nil {
		return out, err
	}
	stop, err := t.store.Open()
	if err != nil {
		return nil, err
	}
	defer stop()
	r := &race{knobs: len(t.knobs), begins: max(2, min(firstGeneration, o.Runs*2/3)), decode: t.decode, play: t.race,
		more: t.more, indifference: o.Indifference, order: byScore, rng: rand.New(rand.NewPCG(o.Seed, 0x7475_6e65))}
	if len(t.objectives) > 1 {
		r.order = byFront
	}
	var first []*candidate
	if c := t.today(); c != nil {
		first = append(first, c)
	}
	err = r.search(first)
	out := &Tuned{Scenario: t.base.Name, Knobs: t.knobs, t: t, Runs: t.runs, Replications: o.Replications,
		Objectives: t.goal.names()}
	for i := range t.scenarios[1:] {
		out.Others = append(out.Others, t.scenarios[1+i].Name)
	}
	valid := slices.DeleteFunc(r.best, func(c *candidate) bool { return !c.score.possible() })
	for _, c := range valid {
		out.Candidates = append(out.Candidates, Candidate{t.named(c), t.values(&c.score), c.score.Violation == 0})
	}
	if err == nil && len(valid) == 0 {
		err = exit.Errorf(exit.Usage, "no candidate played a whole run: found --runs %d and --time %s; expected more",
			o.Runs, o.Time)
	}
	if err == nil {
		err = t.decide(out, valid)
	}
	if errors.Is(err, search.ErrAbsent) {
		err = exit.Errorf(exit.Input, "--results %s: a run of the search is missing: %w; expected the runs of all "+
			"shares, with these flags and scenarios, by version %s", o.Results, err, version.Text())
	}
	if len(valid) == 0 || err != nil && ctx.Err() == nil {
		return nil, err
	}
	if len(out.Best) == 0 {
		c := valid[0]
		out.Interrupted, out.Verdict = true, "interrupted: the best so far, which no fresh seed has confirmed"
		out.Best = []Finalist{{c: c, Values: t.named(c), Results: t.results(&c.score), Kept: c.score.Violation == 0}}
		out.Knee = 0
	}
	out.AllRuns = t.runs
	if bad := t.configured(out, out.Best[out.Knee].c); bad != nil {
		return nil, bad
	}
	if err == nil {
		err = t.elsewhere(out)
	}
	return out, err
}

// Check returns the files that the search reads, and how many shares have runs to play, or an error for a mistake.
func (o *Options) Check() (inputs []string, shares int, err error) {
	t, err := prepare(*o)
	if err != nil {
		return nil, 0, err
	}
	for i := range t.scenarios {
		inputs = append(append(inputs, t.scenarios[i].Files()...), o.Variants[i].File)
	}
	return inputs, min(firstGeneration, o.Runs), nil
}

func prepare(o Options) (t *tuner, err error) {
	switch {
	case o.Runs < 1 || o.Runs > mostRuns:
		return nil, exit.Errorf(exit.Usage, "--runs: found %d; expected a whole number, from 1 to %d", o.Runs, mostRuns)
	case !(o.Indifference >= 0 && o.Indifference < 1):
		return nil, exit.Errorf(exit.Usage, "--indifference: found %v percent; expected a number from 0, below 100",
			100*o.Indifference)
	case !(o.HoldOut >= 0 && o.HoldOut <= mostHeldOut):
		return nil, exit.Errorf(exit.Usage, "--hold-out: found %v percent; expected a number from 0 to %v",
			100*o.HoldOut, 100*mostHeldOut)
	case o.Time > 0 && o.Share.Of > 0:
		return nil, exit.Errorf(exit.Usage, "--time and --share: found both; expected --runs alone, since the "+
			"processes play the same search")
	}
	if err := search.CheckReplications(fewestToJudge, o.Replications); err != nil {
		return nil, err
	}
	t = &tuner{Options: o, store: o.Division.Store()}
	if t.weights, err = parseCombine(o.Combine, len(o.Variants)); err != nil {
		return nil, err
	}
	located, err := t.section()
	if err != nil {
		return nil, err
	}
	if t.space, err = newSpace(t.Variants, t.Vary, t.Where, t.Seed); err != nil {
		return nil, located(err)
	}
	if t.goal, err = newGoal(t.base, t.Objectives, t.Keep, t.SLO); err != nil {
		return nil, located(err)
	}
	knobs := terminal.Texts(len(t.knobs), func(i int) string { return t.knobs[i].Name })
	for i := range o.Variants {
		key, err := t.store.Of(&o.Variants[i], t.scenarios[i], knobs, t.Objectives, t.Keep, o.SLO, o.HoldOut)
		if err != nil {
			return nil, err
		}
		t.keys = append(t.keys, key)
	}
	return t, nil
}

// mostAnswer bounds the file of a result, in bytes.
const mostAnswer = 1 << 28

// answered returns the result in the file of --results --collect, nil without one.
func (t *tuner) answered() (*Tuned, error) {
	if info, err := os.Stat(t.Results); err != nil || !t.Collect || info.IsDir() {
		return nil, nil
	}
	x := &Tuned{t: t}
	text, err := files.Read(t.Results, mostAnswer)
	if err == nil {
		err = json.Unmarshal(text, x)
	}
	if err != nil || len(x.Best) <= x.Knee {
		return nil, exit.Errorf(exit.Input, "--results %s: found no result (%v); expected the output of windtunnel "+
			"tune --output json", t.Results, err)
	}
	return x, nil
}

// section takes what the options leave out from the first scenario's section tune. It returns a function that gives
// errors about a flag the place of its field, where the field replaces it.
func (t *tuner) section() (located func(error) error, err error) {
	s, err := t.Variants[0].Scenario(0)
	if err != nil {
		return nil, err
	}
	from := map[string]string{}
	for field, x := range map[string]struct{ to, in *[]string }{"vary": {&t.Vary, &s.Tune.Vary},
		"where": {&t.Where, &s.Tune.Where}, "objective": {&t.Objectives, &s.Tune.Objective},
		"keep": {&t.Keep, &s.Tune.Keep}} {
		if len(*x.to) == 0 && len(*x.in) > 0 {
			*x.to, from["--"+field] = *x.in, "tune."+field
		}
	}
	return func(err error) error {
		for flag, path := range from {
			if rest, is := strings.CutPrefix(err.Error(), flag); is {
				return exit.With(exit.Input, s.Locate(path, errors.New(strings.TrimLeft(rest, ": "))))
			}
		}
		return err
	}, nil
}

// mostHeldOut bounds HoldOut.
const mostHeldOut = 0.9

// parseCombine returns the weights of so many scenarios, nil for the worst one.
func parseCombine(text string, scenarios int) (weights []float64, err error) {
	switch text {
	case "worst":
		return nil, nil
	case "mean", "":
		return slices.Repeat([]float64{1 / float64(scenarios)}, scenarios), nil
	}
	sum := 0.0
	for word := range strings.SplitSeq(text, ",") {
		w, err := strconv.ParseFloat(word, 64)
		if err != nil || !(w >= 0 && w <= 1e9) {
			return nil, exit.Errorf(exit.Usage, "--combine: found %q; expected mean, worst, or a weight for each "+
				"scenario, such as 3,1", text)
		}
		weights, sum = append(weights, w), sum+w
	}
	if len(weights) != scenarios || sum == 0 {
		return nil, exit.Errorf(exit.Usage, "--combine: found %d weights with the sum %v for %d scenarios; expected "+
			"one for each, and a sum above 0", len(weights), sum, scenarios)
	}
	for i := range weights {
		weights[i] /= sum
	}
	return weights, nil
}

// more reports whether the budget allows so many runs of candidates.
func (t *tuner) more(candidates int) bool {
	return t.runs+candidates*len(t.Variants) <= t.Runs && (t.Time <= 0 || time.Since(t.began) < t.Time)
}

// job is a run: of values, nil for today's configuration, with the scenario's seed and so many more.
type job struct {
	values []string
	length float64 // the share of a whole run
	seed   int
	factor float64 // of the step times, 0 for 1
}

// outcome is the part of a run's result that a search keeps.
type outcome struct {
	Score
	Measures  map[string]float64
	StepTimes report.StepError
	// Refused says why the values are no scenario together.
	Refused string `json:",omitempty"`
}

// name names a job's run in one of the scenarios.
func (t *tuner) name(which int, j *job) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%v %d %v %q", j.length, j.seed, j.factor, j.values))
	return t.keys[which] + "-" + hex.EncodeToString(sum[:16])
}

// MarshalBinary returns the form in a file.
func (x *outcome) MarshalBinary() ([]byte, error) { return json.Marshal((*stored)(x)) }

// UnmarshalBinary reads the form of MarshalBinary.
func (x *outcome) UnmarshalBinary(text []byte) error { return json.Unmarshal(text, (*stored)(x)) }

type stored outcome

// prepared returns one of the scenarios as a job plays it.
func (t *tuner) prepared(which int, j *job) (*scenario.Scenario, error) {
	s, err := t.scenario(which, j)
	if err != nil {
		return nil, err
	}
	if t.HoldOut > 0 {
		s.Part(1-t.HoldOut, j.seed >= decidingSeed)
	}
	number := s.Seed + uint64(j.seed)
	over := scenario.Overrides{Seed: &number}
	if n := int(j.length * float64(s.Workload.Requests)); j.length < 1 && n > 0 {
		over.Requests = &n
	}
	return s, exit.With(exit.Usage, s.Override(over))
}

// play plays a job in one of the scenarios.
func (t *tuner) play(which int, j *job, out *outcome) error {
	s, err := t.prepared(which, j)
	if err != nil {
		return err
	}
	played, err := t.player.Play(t.ctx, s, nil)
	if err != nil {
		return err
	}
	x := &run{played, report.Runs{played.Sample}.Under(t.slo)}
	*out = outcome{Score: t.score(x), Measures: map[string]float64{}, StepTimes: report.StepErrorOf(x.Sample.Load)}
	for _, name := range shownMeasures {
		if v := valueOf(x.measures, name); !math.IsNaN(v) {
			out.Measures[name] = v
		}
	}
	if j.seed >= decidingSeed {
		queues(out.Measures, x.Sample.Load)
	}
	return nil
}

// playAll plays jobs in all scenarios, and combines each job's outcomes. Values that are no scenario together have an
// impossible score, and an error in refused.
func (t *tuner) playAll(jobs []job, what string) (out []outcome, refused []error, err error) {
	n := len(t.Variants)
	all, refused := make([]outcome, len(jobs)*n), make([]error, len(jobs))
	bad := make([]error, len(all))
	done := t.player.Counter(what, len(all))
	err = t.store.Each(t.ctx, len(all), func(i int) (ended bool, err error) {
		j := &jobs[i/n]
		ended, err = t.store.Run(t.name(i%n, j), &all[i], func() error {
			err := t.play(i%n, j, &all[i])
			if code := exit.Of(err); err != nil && (code == exit.Input || code == exit.Usage) {
				all[i] = outcome{Score: impossible, Refused: err.Error()}
				return nil
			}
			return err
		})
		if all[i].Refused != "" {
			bad[i] = exit.Errorf(exit.Input, "%s", all[i].Refused)
		}
		if ended {
			done()
		}
		return ended, err
	})
	t.runs += len(all)
	if err != nil {
		return nil, nil, err
	}
	out = make([]outcome, len(jobs))
	for i := range out {
		out[i] = t.combine(all[i*n : (i+1)*n])
		refused[i] = errors.Join(bad[i*n : (i+1)*n]...)
	}
	return out, refused, nil
}

// combine returns the outcome of several scenarios together. Measures are means.
func (t *tuner) combine(list []outcome) outcome {
	out := outcome{Measures: map[string]float64{}, StepTimes: list[0].StepTimes}
	counts := map[string]float64{}
	for i := range list {
		x := &list[i]
		if !x.possible() {
			return outcome{Score: impossible}
		}
		out.Violation += x.Violation
		for k, v := range x.Values {
			switch {
			case t.weights != nil:
				out.Values[k] += t.weights[i] * v
			case i == 0 || v > out.Values[k]:
				out.Values[k] = v
			}
		}
		for name, v := range x.Measures {
			counts[name]++
			out.Measures[name] += v
		}
	}
	for name, n := range counts {
		out.Measures[name] /= n
	}
	return out
}

// race plays candidates with the seed of a generation. Values that are no scenario together get the worst score.
func (t *tuner) race(list []*candidate, length float64, generation int) ([]Score, error) {
	jobs := make([]job, len(list))
	for i, c := range list {
		jobs[i] = job{values: c.values, length: length, seed: generation}
	}
	played, refused, err := t.playAll(jobs, fmt.Sprintf("candidates of generation %d, %.0f %% of a run", generation+1,
		100*length))
	if err != nil {
		return nil, err
	}
	out := make([]Score, len(list))
	for i := range played {
		out[i] = played[i].Score
	}
	switch {
	case !slices.Contains(refused, nil):
		err = refused[0]
	case !slices.ContainsFunc(out, Score.possible):
		err = exit.Errorf(exit.Input, "no run has a value of %s; choose another --objective, or more requests (-n)",
			strings.Join(t.names(), " and "))
	}
	return out, err
}

// configured sets the configurations and fields of a candidate, in the first scenario.
func (t *tuner) configured(out *Tuned, c *candidate) error {
	s, err := t.scenario(0, &job{values: c.values})
	if err != nil {
		return err
	}
	out.Configs = map[string]string{}
	for i := range t.knobs {
		k := &t.knobs[i]
		for _, f := range k.settings(c.values[i]) {
			out.Settings = append(out.Settings, f.String())
		}
	}
	for i := range s.Pools {
		if now := s.Pools[i].EPP.Config; !bytes.Equal(now.Text, t.base.Pools[i].EPP.Config.Text) {
			out.Configs[s.Pools[i].Name] = string(now.Text)
		}
	}
	return nil
}
