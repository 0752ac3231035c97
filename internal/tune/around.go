package tune

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/report"
)

// tried returns the job that tries a candidate beside the best one.
func (t *tuner) tried() job {
	length := 1.0
	if n := t.base.Workload.Requests; n > 0 {
		length = min(1, max(triedLength, leastTried/float64(n)))
	}
	return job{length: length, seed: decidingSeed}
}

// sensitivity moves each knob alone around the best candidate, and then those that matter most in pairs.
func (t *tuner) sensitivity(out *Tuned) error {
	best := out.Best[out.Knee].c
	list := []Finalist{{c: best}}
	moves := make([][]int, len(t.knobs)) // of each knob, in the list
	for i := range t.knobs {
		var values []string
		for j := range triedValues {
			at := slices.Clone(best.at)
			at[i] = (float64(j) + 0.5) / triedValues
			if c := t.moved(at); c != nil && !slices.Contains(values, c.values[i]) {
				values = append(values, c.values[i])
				moves[i], list = append(moves[i], len(list)), append(list, Finalist{c: c})
			}
		}
	}
	if _, err := t.replicate(list, t.tried(), tryingSeeds, "runs around the best"); err != nil {
		return err
	}
	largest := make([]*Finalist, len(t.knobs)) // the move of each knob that matters with the largest change
	for i := range t.knobs {
		for o := range t.objectives {
			s := Sensitivity{Knob: t.knobs[i].Name, Objective: t.objectives[o].name}
			for _, n := range moves[i] {
				f := &list[n]
				f.against(&list[0], (len(list)-1)*len(t.objectives))
				r := f.Results[o]
				s.Values, s.Changes = append(s.Values, f.c.values[i]), append(s.Changes, r.Gain)
				matters := math.Abs(r.Gain) > t.Indifference && r.Low*r.High > 0
				s.Matters = s.Matters || matters || !f.Kept
				if matters && o == 0 && f.mean.possible() &&
					(largest[i] == nil || math.Abs(r.Gain) > math.Abs(largest[i].Results[0].Gain)) {
					largest[i] = f
				}
			}
			out.Sensitivity = append(out.Sensitivity, s)
		}
	}
	return t.pairs(out, &list[0], largest)
}

// moved returns the candidate at a point, nil where its values are no scenario.
func (t *tuner) moved(at []float64) *candidate {
	values, ok := t.decode(at)
	if !ok {
		return nil
	}
	if _, err := t.scenario(0, &job{values: values}); err != nil {
		return nil
	}
	return &candidate{at: at, values: values}
}

// pairs moves the knobs that matter most in pairs, each to the value with its largest change.
func (t *tuner) pairs(out *Tuned, best *Finalist, largest []*Finalist) error {
	var knobs []int
	for i := range largest {
		if largest[i] != nil {
			knobs = append(knobs, i)
		}
	}
	slices.SortStableFunc(knobs, func(a, b int) int {
		return cmp.Compare(math.Abs(largest[b].Results[0].Gain), math.Abs(largest[a].Results[0].Gain))
	})
	knobs = knobs[:min(len(knobs), mostPaired)]
	var list []Finalist
	var of [][2]int
	for n, i := range knobs {
		for _, k := range knobs[n+1:] {
			at := slices.Clone(best.c.at)
			at[i], at[k] = largest[i].c.at[i], largest[k].c.at[k]
			if c := t.moved(at); c != nil {
				list, of = append(list, Finalist{c: c}), append(of, [2]int{i, k})
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	if _, err := t.replicate(list, t.tried(), tryingSeeds, "pairs of knobs"); err != nil {
		return err
	}
	for n := range list {
		a, b := largest[of[n][0]], largest[of[n][1]]
		p := Pair{Knobs: [2]string{t.knobs[of[n][0]].Name, t.knobs[of[n][1]].Name},
			Values: [2]string{a.c.values[of[n][0]], b.c.values[of[n][1]]}}
		if !list[n].mean.possible() {
			continue
		}
		together := make([]float64, tryingSeeds)
		for i := range together {
			together[i] = a.scores[i].Values[0] + b.scores[i].Values[0] - best.scores[i].Values[0] -
				list[n].scores[i].Values[0]
		}
		p.Together, p.Low, p.High = relative(together, best.mean.Values[0], len(list))
		if math.Abs(p.Together) > t.Indifference && p.Low*p.High > 0 {
			out.Pairs = append(out.Pairs, p)
		}
	}
	return nil
}

// doubt plays the best candidate and today's configuration with step times that are longer and shorter by their
// expected error, where the verdict names a gain. It sets Doubt if the gain is then no gain beyond
// chance and indifference.
func (t *tuner) doubt(out *Tuned, steps *report.StepError) error {
	wrong := steps.Most()
	if !out.Better || !out.Today.Kept || wrong <= 0 || wrong >= 1 || !t.scalable() {
		return nil
	}
	for _, factor := range []float64{1 - wrong, 1 + wrong} {
		list := []Finalist{{}, {c: out.Best[out.Knee].c}}
		j := t.tried()
		j.factor = factor
		what := fmt.Sprintf("runs with step times × %.2f", factor)
		if _, err := t.replicate(list, j, tryingSeeds, what); err != nil {
			return err
		}
		list[1].against(&list[0], len(t.objectives))
		if !list[0].mean.possible() || list[1].Kept && t.better(&list[1]) {
			continue
		}
		longer := "longer"
		if factor < 1 {
			longer = "shorter"
		}
		out.Doubt = fmt.Sprintf("with step times %.0f %% %s, which the model's expected error allows, the gain is %s "+
			"in %s",
			100*wrong, longer, list[1].Results[0].text(), t.objectives[0].name)
	}
	return nil
}

// scalable reports whether a factor of step times can be set in all pools.
func (t *tuner) scalable() bool {
	_, err := t.scenario(0, &job{factor: 1.1})
	return err == nil
}
