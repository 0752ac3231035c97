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
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report"
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

// mostRuns bounds the runs of a search, and fewestToJudge the seeds that decide.
const mostRuns, fewestToJudge = 100_000, 3

// tuner is a search that is under way.
type tuner struct {
	Options
	*space
	goal
	player *search.Player
	ctx    context.Context
	began  time.Time
	runs   int
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
	out := &Tuned{Scenario: t.base.Name, Objective: t.measure.Name, Knobs: t.knobs, measure: t.measure, Runs: t.runs,
		Replications: o.Replications}
	valid := slices.DeleteFunc(r.best, func(c *candidate) bool { return !c.score.possible() })
	switch {
	case err != nil && ctx.Err() == nil:
		return nil, err
	case len(valid) == 0 && err == nil:
		err = exit.Errorf(exit.Usage, "no candidate played a whole run: found --runs %d and --time %s; expected more",
			o.Runs, o.Time)
		fallthrough
	case len(valid) == 0:
		return nil, err
	case err == nil:
		if err = t.decide(out, valid); err == nil {
			err = t.sensitivity(out)
		}
	}
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	best := valid[0]
	if len(out.Best) > 0 {
		best = out.Best[0].c
	} else {
		out.Interrupted, out.Verdict = true, "interrupted: the best so far, which no fresh seed has confirmed"
		out.Best = []Finalist{{Values: t.named(best), Value: t.signed(best.score.Value),
			Kept: best.score.Violation == 0}}
	}
	out.AllRuns, out.Seconds = t.runs, time.Since(t.began).Seconds()
	if bad := t.configured(out, best); bad != nil {
		return nil, bad
	}
	return out, err
}

func (t *tuner) prepare() (err error) {
	switch {
	case t.Runs < 1 || t.Runs > mostRuns:
		return exit.Errorf(exit.Usage, "--runs: found %d; expected a whole number, from 1 to %d", t.Runs, mostRuns)
	case !(t.Indifference >= 0 && t.Indifference < 1):
		return exit.Errorf(exit.Usage, "--indifference: found %v percent; expected a number from 0, below 100",
			100*t.Indifference)
	}
	if err := search.CheckReplications(fewestToJudge, t.Replications); err != nil {
		return err
	}
	if t.space, err = newSpace(t.Variant, t.Vary, t.Where, t.Seed); err != nil {
		return err
	}
	t.goal, err = newGoal(t.base, t.Objective, t.Keep, t.SLO)
	return err
}

// more reports whether the budget allows so many runs.
func (t *tuner) more(runs int) bool {
	return t.runs+runs <= t.Runs && (t.Time <= 0 || time.Since(t.began) < t.Time)
}

// play plays values, nil for today's configuration, for a share of a run, with the scenario's seed and so many more.
func (t *tuner) play(values []string, length float64, seed int) (*search.Result, error) {
	s, err := t.scenario(values)
	if err != nil {
		return nil, err
	}
	number := s.Seed + uint64(seed)
	over := scenario.Overrides{Seed: &number}
	if n := int(length * float64(s.Workload.Requests)); length < 1 && n > 0 {
		over.Requests = &n
	}
	if err := s.Override(over); err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return t.player.Play(t.ctx, s, nil)
}

// measured returns the measures of a run.
func (t *tuner) measured(x *search.Result) *report.Analysis {
	return report.Runs{x.Sample}.Under(t.slo)
}

// race plays candidates with the seed of a generation. Values that are no scenario together get the worst score.
func (t *tuner) race(list []*candidate, length float64, generation int) ([]Score, error) {
	out, refused := make([]Score, len(list)), make([]error, len(list))
	what := fmt.Sprintf("candidates of generation %d, %.0f %% of a run", generation+1, 100*length)
	done := t.player.Counter(what, len(list))
	err := search.Each(len(list), func(i int) error {
		defer done()
		x, err := t.play(list[i].values, length, generation)
		switch code := exit.Of(err); {
		case err == nil:
			out[i] = t.score(t.measured(x))
		case code != exit.Input && code != exit.Usage:
			return err
		default:
			out[i], refused[i] = Score{Violation: math.Inf(1)}, err
		}
		return nil
	})
	t.runs += len(list)
	switch {
	case err != nil:
	case !slices.Contains(refused, nil):
		err = refused[0]
	case !slices.ContainsFunc(out, Score.possible):
		err = exit.Errorf(exit.Input, "no run has a value of %s; choose another --objective, or a longer scenario",
			t.measure.Name)
	}
	return out, err
}

// configured sets the configurations and fields of a candidate.
func (t *tuner) configured(out *Tuned, c *candidate) error {
	s, err := t.scenario(c.values)
	if err != nil {
		return err
	}
	out.Configs = map[string]string{}
	for i := range t.knobs {
		k := &t.knobs[i]
		if k.scorer == "" {
			out.Settings = append(out.Settings, k.Name+"="+c.values[i])
			continue
		}
		out.Configs[s.Pools[k.pool].Name] = string(s.Pools[k.pool].EPP.Config.Text)
	}
	return nil
}
