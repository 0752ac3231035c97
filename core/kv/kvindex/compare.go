package kvindex

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/kv"
)

// Comparison is what an index has of pods, held against what their engines
// truly have.
type Comparison struct {
	// Pods is how many engines have blocks, Blocks how many pairs of block and
	// pod there are.
	Pods, Blocks int
	// Missing pairs are the engines' and not the index's, Extra ones the
	// reverse.
	Missing, Extra int
}

// Compare holds an index against the engines. engines are each engine's own
// names for its blocks, names an index that heard every event and so knows
// their keys, and held the keys, sorted, that the index in question has of one
// engine's pod. A block that its engine never announced is missing.
func Compare(engines [][]kv.EngineHash, names *Index, held func(engine int) []kv.Key) Comparison {
	var c Comparison
	for i, hashes := range engines {
		var keys []kv.Key
		for _, hash := range hashes {
			known := names.Names(hash)
			if len(known) == 0 {
				c.Missing++
				c.Blocks++
			}
			keys = append(keys, known...)
		}
		slices.Sort(keys)
		keys = slices.Compact(keys) // two of the engine's blocks may have one content
		c.Blocks += len(keys)
		if len(hashes) > 0 {
			c.Pods++
		}
		missing, extra := difference(keys, held(i))
		c.Missing += missing
		c.Extra += extra
	}
	return c
}

// difference counts what only one of two sorted lists has.
func difference(a, b []kv.Key) (onlyA, onlyB int) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		case a[0] < b[0]:
			onlyA++
			a = a[1:]
		default:
			onlyB++
			b = b[1:]
		}
	}
	return onlyA + len(a), onlyB + len(b)
}
