package picker

import (
	"math"
	"slices"
)

// In a large pool most of a decision's time goes into scoring endpoints that have not changed since the last one. Where
// only the chosen endpoint is read (Options.Brief), a profile keeps its totals between decisions and recomputes only
// those of endpoints whose metrics changed, or to which the request itself matters. The choice is the same.

// StateScorer is a Scorer whose score of an endpoint depends only on the endpoint's State.
type StateScorer interface {
	Scorer
	// ScoreState returns the score that Score writes for an endpoint.
	ScoreState(s *State) float64
}

// RangeScorer is a Scorer that compares a figure of each endpoint with the others': its score is Ranged.
type RangeScorer interface {
	Scorer
	Figure(s *State) int64
}

// Ranged returns 1 for the lowest of several figures, 0 for the highest, and proportional values between; 1 if all are
// equal.
func Ranged(v, low, high int64) float64 {
	if low == high {
		return 1
	}
	return float64(high-v) / float64(high-low)
}

// SparseScorer is a Scorer that scores most endpoints 0, and each of the others independently.
type SparseScorer interface {
	Scorer
	// Scored returns the slots of the endpoints that it may score above 0, each once; false if these may be any.
	Scored(c *Cycle) (slots []int32, known bool)
}

// BestPicker is an EndpointPicker that may choose the one endpoint with the best total.
type BestPicker interface {
	EndpointPicker
	// Best reports whether it does.
	Best() bool
	// Tied returns which of n endpoints that share the best total it chooses, as an index in their order.
	Tied(c *Cycle, n int) int
}

// BlindPicker is an EndpointPicker that may choose one endpoint regardless of the totals.
type BlindPicker interface {
	EndpointPicker
	// Blind reports whether it does.
	Blind() bool
}

// standing holds a profile's totals at its last decision, without the part that depends on the request.
type standing struct {
	scorers []standingScorer
	view    *View // the totals are for
	changes *changes
	places  []int32
	totals  []float64
	best    tournament

	// Of one decision:
	some   []int32 // endpoints to which the request matters
	sums   []float64
	chosen []int32
	one    [1]int32
	score  [1]float64
}

// standingScorer is one scorer's part. One of state, figure and sparse is not nil.
type standingScorer struct {
	WeightedScorer
	state    StateScorer
	figure   RangeScorer
	sparse   SparseScorer
	figures  []int64
	spread   spread
	low, top int64     // lowest and highest figure when the scores were weighed
	weighed  []float64 // scores times weight
}

// newStanding returns nil for a profile whose scores must be computed for each request.
func newStanding(pr *profile, pool *Pool) *standing {
	best, ok := pr.picker.(BestPicker)
	if !ok || !best.Best() || len(pr.filters) > 0 || len(pr.scorers) == 0 {
		return nil
	}
	s := &standing{}
	for _, w := range pr.scorers {
		x := standingScorer{WeightedScorer: w}
		x.state, _ = w.Scorer.(StateScorer)
		x.figure, _ = w.Scorer.(RangeScorer)
		x.sparse, _ = w.Scorer.(SparseScorer)
		if x.state == nil && x.figure == nil && x.sparse == nil || math.IsNaN(w.Weight) || math.IsInf(w.Weight, 0) {
			return nil
		}
		s.scorers = append(s.scorers, x)
	}
	s.changes = pool.watch()
	return s
}

// weigh returns a clamped score times its weight.
func weigh(score, weight float64) float64 {
	if !(score >= 0) { // includes NaN
		score = 0
	} else if score > 1 {
		score = 1
	}
	return float64(score * weight) // no fused multiply-add, for the same digits on every machine
}

// follow updates the totals.
func (s *standing) follow(v *View) {
	if s.view != v || s.changes.all {
		s.rebuild(v)
		s.changes.clear()
		return
	}
	for _, i := range s.changes.list {
		for n := range s.scorers {
			x := &s.scorers[n]
			switch {
			case x.state != nil:
				x.weighed[i] = weigh(x.state.ScoreState(&v.States[i]), x.Weight)
			case x.figure != nil:
				if f := x.figure.Figure(&v.States[i]); f != x.figures[i] {
					x.spread.remove(x.figures[i])
					x.spread.add(f)
					x.figures[i] = f
					x.weighed[i] = weigh(Ranged(f, x.low, x.top), x.Weight)
				}
			}
		}
		s.total(i)
	}
	s.changes.clear()
	moved := false
	for n := range s.scorers {
		if x := &s.scorers[n]; x.figure != nil && x.spread.moved(x.low, x.top) {
			x.weighAll()
			moved = true
		}
	}
	if moved {
		s.totalAll()
	}
}

// rebuild computes everything for a view's endpoints.
func (s *standing) rebuild(v *View) {
	n := len(v.States)
	s.view, s.totals = v, make([]float64, n)
	s.places = s.places[:0]
	for i := range v.States {
		for slot := v.States[i].Slot(); len(s.places) <= slot; {
			s.places = append(s.places, -1)
		}
		s.places[v.States[i].Slot()] = int32(i)
	}
	for k := range s.scorers {
		x := &s.scorers[k]
		x.weighed = make([]float64, n)
		switch {
		case x.state != nil:
			for i := range v.States {
				x.weighed[i] = weigh(x.state.ScoreState(&v.States[i]), x.Weight)
			}
		case x.figure != nil:
			x.figures, x.spread = make([]int64, n), spread{}
			for i := range v.States {
				x.figures[i] = x.figure.Figure(&v.States[i])
				x.spread.add(x.figures[i])
			}
			x.weighAll()
		}
	}
	s.best.resize(n)
	s.totalAll()
}

func (x *standingScorer) weighAll() {
	x.low, x.top = x.spread.ends()
	for i, f := range x.figures {
		x.weighed[i] = weigh(Ranged(f, x.low, x.top), x.Weight)
	}
}

// sum adds up an endpoint's scores in the order of the scorers, like Cycle.Run. Scores that depend on the request come
// from c, and count 0 if c is nil.
func (s *standing) sum(c *Cycle, i int32) (total float64) {
	for k := range s.scorers {
		x := &s.scorers[k]
		switch {
		case x.sparse == nil:
			total += x.weighed[i]
		case c != nil:
			s.one[0], s.score[0] = i, 0
			x.Scorer.Score(c, s.one[:], s.score[:])
			total += weigh(s.score[0], x.Weight)
		}
	}
	return total
}

func (s *standing) total(i int32) {
	if t := s.sum(nil, i); t != s.totals[i] {
		s.totals[i] = t
		s.best.set(i, t)
	}
}

func (s *standing) totalAll() {
	for i := range s.totals {
		s.totals[i] = s.sum(nil, int32(i))
	}
	s.best.fill(s.totals)
}

// pick returns the endpoint that the profile chooses, with its total; false if the request may matter to any endpoint.
func (s *standing) pick(c *Cycle, picker BestPicker) (endpoint int32, total float64, ok bool) {
	s.follow(c.View)
	s.some = s.some[:0]
	for k := range s.scorers {
		x := &s.scorers[k]
		if x.sparse == nil {
			continue
		}
		c.running = x.Scorer
		slots, known := x.sparse.Scored(c)
		if !known {
			return 0, 0, false
		}
		for _, slot := range slots {
			if int(slot) < len(s.places) && s.places[slot] >= 0 {
				s.some = append(s.some, s.places[slot])
			}
		}
	}
	if 8*len(s.some) > len(s.totals) {
		s.sums = append(s.sums[:0], s.totals...)
		for _, i := range s.some {
			s.sums[i] = s.sum(c, i)
		}
		c.running = picker
		s.chosen = picker.PickEndpoints(c, c.Candidates, s.sums, s.chosen[:0])
		return s.chosen[0], s.sums[s.chosen[0]], true
	}
	s.changes.all = len(s.some) > 0 // if a plug-in panics, everything is recomputed
	for _, i := range s.some {
		s.best.set(i, s.sum(c, i))
	}
	c.running = picker
	total, n := s.best.top()
	k := 0
	if n > 1 {
		k = picker.Tied(c, n)
	}
	endpoint = s.best.find(k)
	for _, i := range s.some {
		s.best.set(i, s.totals[i])
	}
	s.changes.all = false
	return endpoint, total, true
}

// spread counts the endpoints with each figure, in order.
type spread struct {
	figures []int64
	counts  []int
}

func (s *spread) add(f int64) {
	i, found := slices.BinarySearch(s.figures, f)
	if !found {
		s.figures, s.counts = slices.Insert(s.figures, i, f), slices.Insert(s.counts, i, 0)
	}
	s.counts[i]++
}

func (s *spread) remove(f int64) {
	i, _ := slices.BinarySearch(s.figures, f)
	if s.counts[i]--; s.counts[i] == 0 {
		s.figures, s.counts = slices.Delete(s.figures, i, i+1), slices.Delete(s.counts, i, i+1)
	}
}

func (s *spread) ends() (low, high int64) { return s.figures[0], s.figures[len(s.figures)-1] }

func (s *spread) moved(low, high int64) bool {
	a, b := s.ends()
	return a != low || b != high
}

// tournament finds the best of many totals, how many endpoints share it and which, when few totals change between
// calls.
type tournament struct {
	size  int // leaves, a power of two
	nodes []pairing
}

// pairing is the best total below a node, and the number of endpoints with it.
type pairing struct {
	best float64
	n    int32
}

func (t *tournament) resize(n int) {
	for t.size = 1; t.size < n; t.size *= 2 {
	}
	t.nodes = make([]pairing, 2*t.size)
	for i := range t.nodes {
		t.nodes[i].best = math.Inf(-1)
	}
}

func (t *tournament) fill(totals []float64) {
	for i, v := range totals {
		t.nodes[t.size+i] = pairing{v, 1}
	}
	for i := t.size - 1; i > 0; i-- {
		t.nodes[i] = t.pair(i)
	}
}

func (t *tournament) pair(i int) pairing {
	a, b := t.nodes[2*i], t.nodes[2*i+1]
	switch {
	case a.best > b.best:
		return a
	case b.best > a.best:
		return b
	}
	return pairing{a.best, a.n + b.n}
}

func (t *tournament) set(leaf int32, v float64) {
	i := t.size + int(leaf)
	t.nodes[i].best = v
	for i /= 2; i > 0; i /= 2 {
		x := t.pair(i)
		if x == t.nodes[i] {
			return
		}
		t.nodes[i] = x
	}
}

func (t *tournament) top() (best float64, n int) { return t.nodes[1].best, int(t.nodes[1].n) }

// find returns endpoint number k of those that share the best total.
func (t *tournament) find(k int) int32 {
	i := 1
	for i < t.size {
		if i *= 2; t.nodes[i].best < t.nodes[i/2].best {
			i++
		} else if n := int(t.nodes[i].n); k >= n && t.nodes[i+1].best == t.nodes[i].best {
			k -= n
			i++
		}
	}
	return int32(i - t.size)
}

// changes lists the endpoints of a pool that have changed since the last clear.
type changes struct {
	all  bool // every endpoint has changed
	seen []bool
	list []int32
}

func (n *changes) add(i int) {
	for len(n.seen) <= i {
		n.seen = append(n.seen, false)
	}
	if !n.seen[i] {
		n.seen[i] = true
		n.list = append(n.list, int32(i))
	}
}

func (n *changes) clear() {
	for _, i := range n.list {
		n.seen[i] = false
	}
	n.all, n.list = false, n.list[:0]
}
