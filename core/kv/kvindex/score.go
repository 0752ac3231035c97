package kvindex

import (
	"math"
	"math/bits"

	"github.com/windtunnel/windtunnel/core/kv"
)

// View looks blocks up. Any number of goroutines may use one while the index
// takes events: it takes no lock.
type View struct{ ix *Index }

// View returns the index as look-ups see it.
func (ix *Index) View() View { return View{ix} }

// Resolve returns the key under which an engine's block is held: the one that its
// tokens gave, or the hash itself where it came without tokens. It serves
// requests that name their blocks (prompt_blocks of document 003). Where an
// engine's block is larger than the index's, it is the last of its keys.
func (v View) Resolve(h kv.EngineHash) kv.Key {
	if k, ok := v.ix.keyOf(h); ok {
		return k
	}
	return kv.Key(nameOf(uint64(h)))
}

// Pods returns how many pods hold a block.
func (v View) Pods(key kv.Key) int {
	var buf [1]holder
	return len(v.ix.blocks.holders(key, &buf))
}

// PodScore is one pod's share of a prompt.
type PodScore struct {
	Pod    string
	Blocks int     // longest unbroken run of the prompt's blocks, from the first
	Weight float64 // the same, each block by the best medium it lies on
}

// Precise returns the score of llm-d-router's prefix-cache-scorer with the precise producer: the weight's whole part
// over the prompt's blocks. The recorded picker drops the fraction: one block on cpu scores 0.
func (p PodScore) Precise(promptBlocks int) float64 {
	if promptBlocks <= 0 {
		return 0
	}
	return math.Floor(p.Weight) / float64(promptBlocks)
}

// Scorer scores prompts against a View. It keeps its memory between calls: one
// per goroutine.
type Scorer struct {
	view   View
	run    []int32
	weight []float64
	out    []PodScore
	seen   []uint16
}

// Scorer makes a scorer.
func (v View) Scorer() *Scorer { return &Scorer{view: v} }

// Score is, for each pod that holds a prompt's first block, the longest
// unbroken run that it holds. Holes count for nothing: an engine can only skip
// what it has from the beginning. The result is valid until the next call; its
// order is that in which the pods came to hold the first block. A burst of
// events meanwhile may show in some blocks and not in others, never in parts
// of a block.
func (s *Scorer) Score(keys []kv.Key) []PodScore {
	names := *s.view.ix.readers.pods.Load()
	weights := s.view.ix.readers.weights.Load()
	for len(s.run) < len(names) {
		s.run, s.weight = append(s.run, 0), append(s.weight, 0)
	}
	s.out, s.seen = s.out[:0], s.seen[:0]
	run := s.run[:len(names)]
	var buf [1]holder
	for i, key := range keys {
		going := false
		for _, h := range s.view.ix.blocks.holders(key, &buf) {
			n := int(h.pod())
			if n >= len(run) || run[n] != int32(i) {
				continue
			}
			if i == 0 {
				s.seen = append(s.seen, uint16(n))
			}
			run[n]++
			s.weight[n] += bestWeight(weights, h.places())
			going = true
		}
		if !going {
			break
		}
	}
	for _, n := range s.seen {
		if names[n] != "" {
			s.out = append(s.out, PodScore{names[n], int(run[n]), s.weight[n]})
		}
		run[n], s.weight[n] = 0, 0
	}
	return s.out
}

// MostHeld returns how much of a prompt the pod has that has most, holes or not, a
// block on two media twice: what llm-d-router counts as a look-up's hits.
func (s *Scorer) MostHeld(keys []kv.Key) (most int) {
	held := map[uint16]int{}
	var buf [1]holder
	for _, key := range keys {
		for _, h := range s.view.ix.blocks.holders(key, &buf) {
			held[h.pod()] += bits.OnesCount16(h.places())
			most = max(most, held[h.pod()])
		}
	}
	return most
}

func bestWeight(weights *[maxPlaces]float64, places uint16) float64 {
	if places == 1 {
		return weights[0]
	}
	best := 0.0
	for i := 0; places != 0; i, places = i+1, places>>1 {
		if places&1 != 0 {
			best = max(best, weights[i])
		}
	}
	return best
}
