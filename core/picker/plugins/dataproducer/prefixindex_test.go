package dataproducer

import (
	"testing"

	"pgregory.net/rapid"
)

// The index against a plain model: per slot a list of blocks, newest first.
func TestPrefixIndexIsAnLRUPerSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 6
		x := newPrefixIndex()
		model := map[int][]uint64{}
		nobodyElse := uint64(1000) // blocks that no other prompt has
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			slot := rapid.IntRange(0, 3).Draw(t, "slot")
			if rapid.IntRange(0, 15).Draw(t, "what") == 0 {
				x.forget(slot)
				delete(model, slot)
				continue
			}
			// Prompts no longer than the capacity: nothing spills.
			first := rapid.Uint64Range(1, 12).Draw(t, "first")
			n := rapid.IntRange(0, capacity).Draw(t, "n")
			var hashes []uint64
			for i := range n {
				hashes = append(hashes, first+uint64(i))
			}
			alone := rapid.IntRange(0, capacity-n).Draw(t, "alone")
			x.add(hashes, alone, slot, capacity)
			for range alone {
				nobodyElse++
				hashes = append(hashes, nobodyElse)
			}
			for _, h := range hashes {
				list := model[slot]
				for i, old := range list {
					if old == h {
						list = append(list[:i:i], list[i+1:]...)
						break
					}
				}
				list = append([]uint64{h}, list...)
				model[slot] = list[:min(len(list), capacity)]
			}
		}
		total := 0
		for slot := range 4 {
			total += len(model[slot])
			if got := x.held(slot); got != len(model[slot]) {
				t.Fatalf("slot %d holds %d blocks, want %d", slot, got, len(model[slot]))
			}
		}
		if x.total != total {
			t.Fatalf("%d pairs, want %d", x.total, total)
		}
		for h := uint64(1); h < 20; h++ {
			count := make([]int32, 4)
			x.match([]uint64{h}, count, nil)
			for slot := range 4 {
				want := int32(0)
				for _, m := range model[slot] {
					if m == h {
						want = 1
					}
				}
				if count[slot] != want {
					t.Fatalf("block %d at slot %d: %d, want %d", h, slot, count[slot], want)
				}
			}
		}
	})
}

// A prompt longer than the capacity keeps its beginning, within bounds.
func TestSpillIsBounded(t *testing.T) {
	x := newPrefixIndex()
	for prompt := range 5000 {
		var hashes []uint64
		for i := range 40 {
			hashes = append(hashes, uint64(prompt*1000+i))
		}
		x.add(hashes, 0, 0, 8)
		count := make([]int32, 1)
		x.match(hashes[:20], count, nil)
		if prompt == 0 && count[0] == 0 {
			t.Fatal("the beginning of a long prompt was lost at once")
		}
	}
	if x.total > 8+minSpill || len(x.blocks) > 8+minSpill {
		t.Fatalf("%d pairs are remembered with a capacity of 8", x.total)
	}
	x.forget(0)
	if x.total != 0 || len(x.blocks) != 0 {
		t.Fatalf("%d pairs stay after the slot was forgotten", x.total)
	}
}
