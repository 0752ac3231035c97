package tune

import (
	"cmp"
	"math"
	"slices"
)

// dominates reports whether a score is at least as good as another in everything, and better in something.
func (s Score) dominates(t Score) bool {
	if s.Violation != t.Violation {
		return s.Violation < t.Violation
	}
	for i := range s.Values {
		if s.Values[i] > t.Values[i] {
			return false
		}
	}
	return s != t
}

// front returns the candidates that no other one dominates, by the first objective. Of equal ones it returns the first.
// With one objective, this is the best candidate.
func front(list []*candidate) (out []*candidate) {
	for i, c := range list {
		if !slices.ContainsFunc(list, func(d *candidate) bool { return d.score.dominates(c.score) }) &&
			!slices.ContainsFunc(list[:i], func(d *candidate) bool { return d.score == c.score }) {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b *candidate) int { return a.score.compare(b.score) })
	return out
}

// gains reports whether a front has a candidate that is better than each of an earlier front, by more than a relative
// indifference in an objective.
func gains(now, was []*candidate, indifference float64) bool {
	return slices.ContainsFunc(now, func(c *candidate) bool {
		return !slices.ContainsFunc(was, func(d *candidate) bool {
			if d.score.Violation > c.score.Violation {
				return false
			}
			for i, v := range d.score.Values {
				if v-c.score.Values[i] > indifference*math.Abs(v) {
					return false
				}
			}
			return true
		})
	})
}

// byScore sorts candidates, the best first.
func byScore(list []*candidate) {
	slices.SortStableFunc(list, func(a, b *candidate) int { return a.score.compare(b.score) })
}

// byFront sorts candidates by how often fronts have to be removed before none dominates them, and within a front by
// the distance to their neighbours, the larger first: a front whose ends and gaps are searched (NSGA-II: Deb et al.
// 2002).
func byFront(list []*candidate) {
	byScore(list)
	rest := slices.Clone(list)
	list = list[:0]
	for len(rest) > 0 {
		first := front(rest)
		rest = slices.DeleteFunc(rest, func(c *candidate) bool { return slices.Contains(first, c) })
		room := crowding(first)
		slices.SortStableFunc(first, func(a, b *candidate) int { return cmp.Compare(room[b], room[a]) })
		list = append(list, first...)
	}
}

// crowding returns the distance of the neighbours of each candidate of a front, in shares of the front's extent, and
// infinity for its ends.
func crowding(front []*candidate) map[*candidate]float64 {
	out := map[*candidate]float64{}
	scale := extent(front)
	for i, c := range front {
		if i == 0 || i == len(front)-1 {
			out[c] = math.Inf(1)
			continue
		}
		for k := range scale {
			out[c] += math.Abs(front[i+1].score.Values[k]-front[i-1].score.Values[k]) / scale[k]
		}
	}
	return out
}

// extent returns the extent of a front in each objective, 1 where it has none.
func extent(front []*candidate) (out [mostObjectives]float64) {
	for k := range out {
		low, high := math.Inf(1), math.Inf(-1)
		for _, c := range front {
			low, high = min(low, c.score.Values[k]), max(high, c.score.Values[k])
		}
		if out[k] = high - low; !(out[k] > 0 && !math.IsInf(out[k], 0)) {
			out[k] = 1
		}
	}
	return out
}

// knee returns the index of the candidate that is furthest below the line between the ends of a front, in shares of the
// front's extent. From there on, a gain in one objective costs most of the other.
func knee(front []*candidate) (at int) {
	scale, best := extent(front), math.Inf(1)
	for i, c := range front {
		sum := 0.0
		for k := range scale {
			sum += (c.score.Values[k] - front[0].score.Values[k]) / scale[k]
		}
		if sum < best {
			at, best = i, sum
		}
	}
	return at
}
