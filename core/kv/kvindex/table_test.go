package kvindex

import (
	"sync"
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

// Finds and sets a million names in an order that defeats caches, compared with Go's map under a lock.
func BenchmarkTable(b *testing.B) {
	const names = 1 << 20
	name := func(i int) uint64 { return nameOf(uint64(i*7919%names) * 0x9e3779b97f4a7c15) }
	var x table
	m := map[uint64]uint64{}
	for i := range names {
		x.set(x.slot(name(i)), 1)
		m[name(i)] = 1
	}
	var mu sync.RWMutex
	found := uint64(0)
	b.Run("get/own", func(b *testing.B) {
		for i := range b.N {
			found += x.get(name(i))
		}
	})
	b.Run("get/map", func(b *testing.B) {
		for i := range b.N {
			mu.RLock()
			found += m[name(i)]
			mu.RUnlock()
		}
	})
	b.Run("set/own", func(b *testing.B) {
		for i := range b.N {
			x.set(x.slot(name(i)), uint64(i|1))
		}
	})
	b.Run("set/map", func(b *testing.B) {
		for i := range b.N {
			mu.Lock()
			m[name(i)] = uint64(i | 1)
			mu.Unlock()
		}
	})
	if found == 0 {
		b.Skip("nothing was found")
	}
}
