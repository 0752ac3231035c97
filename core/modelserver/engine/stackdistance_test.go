package engine

import (
	"slices"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Where one request follows the other, the cache is a stack of blocks by last use, and a cache of any size holds its
// top (Mattson's inclusion). One pass over the requests, which notes nothing but the depth of each block, then says
// how many tokens a cache of every size finds.
func TestHitsAreThoseOfStackDistances(t *testing.T) {
	const size, requests, deepest = 4, 600, 300
	var messages []*Submit
	for i := range uint64(requests) {
		d := machine.NewDraw(1, "stack", "request", i)
		family, depth := min(d.Intn(12), d.Intn(12)), 3+d.Intn(14) // some families come more often
		tail := d.Intn(6)
		tokens := (depth+tail)*size + 1 + d.Intn(size-1) // the last block is never full
		m := &Submit{ID: RequestID(i + 1), PromptTokens: tokens, MaxTokens: 1}
		for b := range depth + tail {
			name := uint64(family*1000 + b)
			if b >= depth {
				name = 1_000_000 + i*100 + uint64(b)
			}
			m.Hashes = append(m.Hashes, mix(name))
		}
		messages = append(messages, m)
	}
	var stack []uint64 // the last used block first
	var hits [deepest + 1]int
	for _, m := range messages {
		used := append(slices.Clone(m.Hashes), mix(uint64(m.ID)<<32)) // with the block that is not full
		for _, b := range m.Hashes {
			if depth := slices.Index(stack, b) + 1; depth > 0 && depth <= deepest {
				for blocks := depth; blocks <= deepest; blocks++ {
					hits[blocks] += size
				}
			}
		}
		stack = append(used, slices.DeleteFunc(stack, func(b uint64) bool { return slices.Contains(used, b) })...)
	}
	for _, blocks := range []int{24, 32, 48, 64, 96, 128, 192, 256, deepest} {
		e, err := New(Config{BlockSize: size, NumGPUBlocks: blocks, MaxModelLen: 24 * size,
			Timer: bentTimer{base: FixedNanos(100), knot: 1 << 40}})
		if err != nil {
			t.Fatal(err)
		}
		var fx Effects
		for _, m := range messages {
			e.Input(e.Now(), m, &fx)
			for at, ok := e.Next(); ok; at, ok = e.Next() {
				e.Advance(at, &fx)
			}
			fx.Reset()
		}
		st := e.Stats()
		if int(st.PrefixCacheHits) != hits[blocks] {
			t.Errorf("%d blocks found %d tokens; by their stack distances %d", blocks, st.PrefixCacheHits, hits[blocks])
		}
		t.Logf("%d blocks: %.1f%%", blocks, 100*float64(hits[blocks])/float64(st.PrefixCacheQueries))
	}
}
