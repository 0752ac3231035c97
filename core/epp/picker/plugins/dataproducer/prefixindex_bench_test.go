package dataproducer

import (
	"runtime"
	"testing"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// lruIndex is the prefix index as the real picker makes it: an LRU for each
// endpoint, and for each block the set of endpoints.
type lruIndex struct {
	blocks map[uint64]map[int]struct{}
	lrus   map[int]*simplelru.LRU[uint64, struct{}]
}

func (x *lruIndex) add(hashes []uint64, slot, capacity int) {
	l := x.lrus[slot]
	if l == nil {
		l, _ = simplelru.NewLRU(capacity, func(h uint64, _ struct{}) {
			if delete(x.blocks[h], slot); len(x.blocks[h]) == 0 {
				delete(x.blocks, h)
			}
		})
		x.lrus[slot] = l
	}
	for _, h := range hashes {
		l.Add(h, struct{}{})
		if x.blocks[h] == nil {
			x.blocks[h] = map[int]struct{}{}
		}
		x.blocks[h][slot] = struct{}{}
	}
}

func (x *lruIndex) match(hashes []uint64, count []int32) {
	for _, h := range hashes {
		if len(x.blocks[h]) == 0 {
			return
		}
		for slot := range x.blocks[h] {
			count[slot]++
		}
	}
}

// A request of 32 blocks that its endpoint holds in part: matched and added,
// with 64 endpoints that are full; beside the ecosystem's LRU.
func BenchmarkPrefixIndex(b *testing.B) {
	const endpoints, capacity, blocks, prompts = 64, 4096, 32, 4 * 64 * 4096 / 32
	hashes := func(i int) []uint64 {
		h := make([]uint64, blocks)
		for k := range h {
			h[k] = uint64(i%prompts)<<32 | uint64(k) | 1<<63
		}
		for k := range blocks / 2 { // a system prompt, one for each endpoint
			h[k] = uint64(i%endpoints)<<8 | uint64(k)
		}
		return h
	}
	run := func(add func([]uint64, int, int), match func([]uint64, []int32)) func(*testing.B) {
		before := memory()
		for i := range endpoints * capacity / blocks * 2 {
			add(hashes(i), i%endpoints, capacity)
		}
		used := memory() - before
		return func(b *testing.B) {
			count := make([]int32, endpoints)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				h := hashes(i + prompts/2)
				match(h, count)
				add(h, i%endpoints, capacity)
			}
			b.ReportMetric(float64(used)/(endpoints*capacity), "B/block")
		}
	}
	own, holding := newPrefixIndex(), []int32(nil)
	b.Run("own", run(func(hashes []uint64, slot, capacity int) { own.add(hashes, 0, slot, capacity) },
		func(hashes []uint64, count []int32) { holding = own.match(hashes, count, holding[:0]) }))
	other := &lruIndex{map[uint64]map[int]struct{}{}, map[int]*simplelru.LRU[uint64, struct{}]{}}
	b.Run("golang-lru", run(other.add, other.match))
	runtime.KeepAlive(own)
	runtime.KeepAlive(other)
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
