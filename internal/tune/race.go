package tune

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Score is the result of playing a candidate. The candidate that violates less is better, and of two that violate
// nothing the one whose values are lower.
type Score struct {
	// Violation is by how much limits are missed, relative to their bounds; 0 if all are kept.
	Violation float64
	// Values are those of the objectives, with the sign that makes lower better; 0 without a second one.
	Values [mostObjectives]float64
}

// impossible is the score of values that are no scenario, or whose runs have no value of an objective.
var impossible = Score{Violation: math.MaxFloat64} // which JSON has, unlike infinity

// possible reports whether a candidate is a scenario whose runs have a value of each objective.
func (s Score) possible() bool { return s.Violation < impossible.Violation }

// compare orders scores, the better first.
func (s Score) compare(t Score) int {
	return cmp.Or(cmp.Compare(s.Violation, t.Violation), slices.Compare(s.Values[:], t.Values[:]))
}

// candidate is a point of the space: a coordinate in [0, 1) for each knob, and the values that it stands for.
type candidate struct {
	at     []float64
	values []string
	score  Score
}

func (c *candidate) key() string { return strings.Join(c.values, "\x00") }

// race is a search for the best candidate. Each generation is a race: all candidates play a short part of a run with
// the same seed, the better third plays a longer part, and a third of these whole runs (successive halving). The first
// generation is spread evenly over the space (a scrambled Halton sequence). Each later one is drawn around the best
// candidates so far, along their differences (differential evolution).
type race struct {
	knobs  int
	begins int // candidates of the first generation
	// decode returns the values at a point, false where they cannot be valid.
	decode func(at []float64) (values []string, ok bool)
	// play plays candidates for a share of a run, each with the seed of the generation, and returns a score for each.
	play func(list []*candidate, length float64, generation int) ([]Score, error)
	// more reports whether so many runs may still be played.
	more func(runs int) bool
	// indifference is the relative gain that is too small to look for.
	indifference float64
	// order sorts candidates, the best first: byScore, or byFront for two objectives.
	order func(list []*candidate)
	rng   *rand.Rand

	halton int
	shift  []float64 // of the Halton sequence
	seen   map[string]bool
	best   []*candidate // that played whole runs, the best first
}

// rungs are the shares of a run that a race plays, and firstGeneration and laterGeneration how many candidates begin,
// as a rule.
var rungs = []float64{1. / 9, 1. / 3, 1}

const (
	firstGeneration, laterGeneration = 54, 27
	elite                            = 6    // candidates that a generation is drawn around
	leastSpread                      = 0.03 // of a coordinate, in a later generation
	anywhere                         = 0.1  // the chance of a coordinate that is drawn from the whole range
	patience                         = 4    // generations without a gain before the end
	mostDraws                        = 200  // for one candidate, since values repeat and constraints refuse
)

// search plays generations until nothing is gained any more, or no run is left.
func (r *race) search(first []*candidate) error {
	r.seen = map[string]bool{}
	for _, c := range first {
		r.seen[c.key()] = true
	}
	idle := 0
	for generation := 0; idle < patience; generation++ {
		n, draw := laterGeneration, r.around
		if generation == 0 {
			n, draw = r.begins, r.spread
		}
		list := first
		for len(list) < n {
			c := r.draw(draw)
			if c == nil {
				break // every value of the space was drawn
			}
			list = append(list, c)
		}
		first = nil
		if len(list) == 0 {
			return nil
		}
		was := front(r.best)
		done, err := r.generation(list, generation)
		if err != nil || done {
			return err
		}
		if gains(front(r.best), was, r.indifference) {
			idle = 0
		} else {
			idle++
		}
	}
	return nil
}

// generation races candidates, and adds those that play whole runs to the best. It returns true when no run is left.
func (r *race) generation(list []*candidate, number int) (done bool, err error) {
	for i, length := range rungs {
		if !r.more(len(list)) {
			return true, nil
		}
		scores, err := r.play(list, length, number)
		if err != nil {
			return false, err
		}
		for i, c := range list {
			c.score = scores[i]
		}
		r.order(list)
		if i+1 < len(rungs) {
			list = list[:max(1, len(list)/3)]
		}
	}
	r.best = append(r.best, list...)
	r.order(r.best)
	return false, nil
}

// draw returns a candidate that was not seen, nil if none is found.
func (r *race) draw(next func() []float64) *candidate {
	for range mostDraws {
		at := next()
		values, ok := r.decode(at)
		c := &candidate{at: at, values: values}
		if ok && !r.seen[c.key()] {
			r.seen[c.key()] = true
			return c
		}
	}
	return nil
}

// spread returns the next point of the Halton sequence, rotated by a random amount in each coordinate.
func (r *race) spread() []float64 {
	for len(r.shift) < r.knobs {
		r.shift = append(r.shift, r.rng.Float64())
	}
	r.halton++
	at := make([]float64, r.knobs)
	for i := range at {
		at[i] = math.Mod(radicalInverse(prime(i), r.halton)+r.shift[i], 1)
	}
	return at
}

// around returns a point near one of the best candidates, moved along the difference of two others. This difference is
// large where they are apart, and keeps to directions in which several knobs depend on each other.
func (r *race) around() []float64 {
	best := r.best[:min(elite, len(r.best))]
	if len(best) == 0 {
		return r.spread()
	}
	from, a, b := best[r.rng.IntN(len(best))], best[r.rng.IntN(len(best))], best[r.rng.IntN(len(best))]
	step := r.rng.NormFloat64()
	at := make([]float64, r.knobs)
	for i := range at {
		if r.rng.Float64() < anywhere {
			at[i] = r.rng.Float64()
			continue
		}
		x := from.at[i] + step*(a.at[i]-b.at[i]) + leastSpread*r.rng.NormFloat64()
		at[i] = min(max(x, 0), math.Nextafter(1, 0))
	}
	return at
}

// radicalInverse mirrors the digits of n in a base at the point.
func radicalInverse(base, n int) (x float64) {
	for f := 1 / float64(base); n > 0; n /= base {
		x += f * float64(n%base)
		f /= float64(base)
	}
	return x
}

// prime returns the prime number with this index, from 0.
func prime(index int) int {
	for n := 2; ; n++ {
		isPrime := true
		for d := 2; d*d <= n; d++ {
			isPrime = isPrime && n%d != 0
		}
		if isPrime {
			if index == 0 {
				return n
			}
			index--
		}
	}
}
