package plugins

import (
	"encoding/json"
	"math"
	"sort"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// count is the pickers' one parameter: how many endpoints to choose, the
// further ones being fallbacks. Below one it is one.
type count struct {
	Max int `json:"maxNumOfEndpoints"`
}

// Complete implements picker.Completer.
func (n *count) Complete(*picker.Builder, string) {
	n.Max = max(n.Max, 1)
}

// maxScore is max-score-picker: the best total; ties are drawn.
type maxScore struct {
	named
	count
}

var newMaxScore = picker.Of(maxScore{count: count{1}})

// PickEndpoints takes the best.
func (s *maxScore) PickEndpoints(c *picker.Cycle, in []int32, totals []float64, picked []int32) []int32 {
	if s.Max == 1 {
		best, n := totals[0], 0
		for _, v := range totals {
			if v > best {
				best, n = v, 1
			} else if v == best {
				n++
			}
		}
		k := 0
		if n > 1 {
			k = s.Tied(c, n)
		}
		for j, v := range totals {
			if v == best {
				if k == 0 {
					return append(picked, in[j])
				}
				k--
			}
		}
	}
	d := c.Draw("tie")
	order := shuffled(&d, len(in))
	sort.SliceStable(order, func(a, b int) bool { return totals[order[a]] > totals[order[b]] })
	for _, j := range order[:min(s.Max, len(order))] {
		picked = append(picked, in[j])
	}
	return picked
}

// Best implements picker.BestPicker.
func (s *maxScore) Best() bool { return s.Max == 1 }

// Tied implements picker.BestPicker: they are drawn.
func (s *maxScore) Tied(c *picker.Cycle, n int) int {
	d := c.Draw("tie")
	return d.Intn(n)
}

func shuffled(d *machine.Draw, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	for i := n - 1; i > 0; i-- {
		j := d.Intn(i + 1)
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// random is random-picker: any candidate, whatever the scores.
type random struct {
	named
	count
}

var newRandom = picker.Of(random{count: count{1}})

// PickEndpoints takes any.
func (s *random) PickEndpoints(c *picker.Cycle, in []int32, _ []float64, picked []int32) []int32 {
	d := c.Draw("random")
	if s.Max == 1 {
		return append(picked, in[d.Intn(len(in))])
	}
	for _, j := range shuffled(&d, len(in))[:min(s.Max, len(in))] {
		picked = append(picked, in[j])
	}
	return picked
}

// Blind implements picker.BlindPicker.
func (s *random) Blind() bool { return s.Max == 1 }

// weightedRandom is weighted-random-picker: chances in proportion to totals
// (A-Res: the largest u^(1/w) win). When no total is positive all are equal.
type weightedRandom struct {
	named
	count
}

var newWeightedRandom = picker.Of(weightedRandom{count: count{1}})

// PickEndpoints draws by weight.
func (s *weightedRandom) PickEndpoints(c *picker.Cycle, in []int32, totals []float64, picked []int32) []int32 {
	positive := false
	for _, v := range totals {
		positive = positive || v > 0
	}
	d := c.Draw("weighted")
	keys := make([]float64, len(in))
	order := make([]int, len(in))
	for j := range in {
		order[j] = j
		u := d.Float64()
		switch {
		case !positive:
			keys[j] = u
		case totals[j] > 0:
			keys[j] = math.Pow(u, 1/totals[j])
		default:
			keys[j] = u - 2 // after all that have a weight
		}
	}
	sort.SliceStable(order, func(a, b int) bool { return keys[order[a]] > keys[order[b]] })
	for _, j := range order[:min(s.Max, len(order))] {
		picked = append(picked, in[j])
	}
	return picked
}

// roundRobin is round-robin-picker, which the real EPP does not have: the candidates in turn, whatever the scores. A
// pool without a picker configuration uses it, and it is the baseline for pools with one.
type roundRobin struct {
	named
	turn int
}

// PickEndpoints takes the next one.
func (s *roundRobin) PickEndpoints(_ *picker.Cycle, in []int32, _ []float64, picked []int32) []int32 {
	return append(picked, in[s.turn%len(in)])
}

// Blind implements picker.BlindPicker.
func (s *roundRobin) Blind() bool { return true }

// Commit advances to the next endpoint.
func (s *roundRobin) Commit(machine.Time, *picker.Decision) { s.turn++ }

// SaveState copies whose turn it is.
func (s *roundRobin) SaveState() any { return s.turn }

// LoadState implements picker.StateKeeper.
func (s *roundRobin) LoadState(text []byte) error { return json.Unmarshal(text, &s.turn) }
