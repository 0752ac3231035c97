package kv

import (
	"testing"

	"pgregory.net/rapid"
)

// A table is a map, whatever its names are and however it had to grow.
func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x table
		model := map[uint64]uint64{}
		count := rapid.SampledFrom([]int{10, 3000, 20_000}).Draw(t, "names")
		seed := rapid.Uint64().Draw(t, "seed")
		step := rapid.SampledFrom([]uint64{1, 2048, 1 << 40, 0x9e3779b97f4a7c15}).Draw(t, "step")
		gone := rapid.IntRange(0, 9).Draw(t, "tenths removed")
		for i := range uint64(count) {
			name := nameOf(seed + i*step)
			x.set(x.slot(name), i+1)
			model[name] = i + 1
			if k := nameOf(seed + i/2*step); int(i%10) < gone {
				if r, ok := x.find(k); ok {
					x.set(r, 0)
				}
				delete(model, k)
			}
		}
		for i := range uint64(count + 10) {
			name := nameOf(seed + i*step)
			if got := x.get(name); got != model[name] {
				t.Fatalf("name %d has the word %d, want %d", i, got, model[name])
			}
		}
		if x.live != len(model) {
			t.Fatalf("%d names, want %d", x.live, len(model))
		}
	})
}
