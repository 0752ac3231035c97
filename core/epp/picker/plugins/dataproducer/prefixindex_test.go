package dataproducer

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// plainLRU is one slot's index as in the real picker, block by block.
type plainLRU struct {
	list    []uint64 // newest first
	spilled map[uint64]bool
}

func (m *plainLRU) add(hashes []uint64, capacity int) {
	for n, h := range hashes {
		if i := slices.Index(m.list, h); i >= 0 {
			m.list = slices.Insert(slices.Delete(m.list, i, i+1), 0, h)
			continue
		}
		delete(m.spilled, h)
		m.list = slices.Insert(m.list, 0, h)
		if len(m.list) > capacity {
			if m.spilled == nil {
				m.spilled = map[uint64]bool{}
			}
			if n >= capacity { // all that is left came with this prompt
				m.spilled[m.list[capacity]] = true
			}
			m.list = m.list[:capacity]
		}
	}
}

func (m *plainLRU) has(h uint64) bool { return m.spilled[h] || slices.Contains(m.list, h) }

// The index against a plain model, with prompts whose beginnings form a tree.
func TestPrefixIndexIsAnLRUPerSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 4
		capacity := rapid.IntRange(1, 9).Draw(t, "capacity")
		x := newPrefixIndex()
		var model [slots]plainLRU
		nobodyElse := uint64(1000) // blocks that no other prompt has
		prompt := func() (hashes []uint64) {
			h := uint64(0)
			for range rapid.IntRange(0, 12).Draw(t, "blocks") {
				h = parse.Mix(h, rapid.SampledFrom([]uint64{1, 1, 1, 2}).Draw(t, "block"))
				hashes = append(hashes, h)
			}
			return hashes
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			slot := rapid.IntRange(0, slots-1).Draw(t, "slot")
			switch rapid.IntRange(0, 15).Draw(t, "what") {
			case 0:
				x.forget(slot)
				model[slot] = plainLRU{}
				continue
			case 1: // what is saved is the same
				text, err := json.Marshal((&approxPrefix{index: x}).SaveState())
				if err != nil {
					t.Fatal(err)
				}
				a := &approxPrefix{}
				if err := a.LoadState(text); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				x = a.index
			}
			hashes, alone := prompt(), rapid.IntRange(0, 5).Draw(t, "alone")
			x.add(hashes, alone, slot, capacity)
			for range alone {
				nobodyElse++
				hashes = append(hashes, nobodyElse)
			}
			model[slot].add(hashes, capacity)
			total := 0
			for slot := range model {
				m := &model[slot]
				total += len(m.list) + len(m.spilled)
				if got := x.blocks(slot); got != len(m.list) {
					t.Fatalf("slot %d holds %d blocks, want %d", slot, got, len(m.list))
				}
			}
			if x.total != total {
				t.Fatalf("%d pairs, want %d", x.total, total)
			}
			asked := prompt()
			want := make([]int32, slots)
			for _, h := range asked {
				nobody := true
				for slot := range model {
					if model[slot].has(h) {
						want[slot]++
						nobody = false
					}
				}
				if nobody {
					break
				}
			}
			got := make([]int32, slots)
			holding := x.match(asked, got, nil)
			if !slices.Equal(got, want) {
				t.Fatalf("of %x the slots have %d, want %d", asked, got, want)
			}
			for slot, n := range want {
				if slices.Contains(holding, int32(slot)) != (n > 0) {
					t.Fatalf("slot %d has %d blocks, and %d are said to have some", slot, n, holding)
				}
			}
		}
		for slot := range slots {
			x.forget(slot)
		}
		if x.total != 0 || len(x.first) != 0 || len(x.unused) != len(x.runs)-1 {
			t.Fatalf("%d pairs and %d runs of %d stay after all slots were forgotten", x.total, len(x.first),
				len(x.runs))
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
	if x.total > 8+minSpill || len(x.first) > 8+minSpill {
		t.Fatalf("%d pairs are remembered with a capacity of 8", x.total)
	}
	x.forget(0)
	if x.total != 0 || len(x.first) != 0 {
		t.Fatalf("%d pairs stay after the slot was forgotten", x.total)
	}
}

// A saved history that cannot be is refused.
func TestPrefixHistoryIsChecked(t *testing.T) {
	for _, text := range []string{
		`[]`,
		`{"runs":[{"hashes":""}]}`,
		`{"runs":[{"before":1,"hashes":"AQAAAAAAAAA="}]}`,
		`{"runs":[{"hashes":"AQAAAAAAAAA="},{"hashes":"AQAAAAAAAAA="}]}`,
		`{"slots":[{"slot":-1}]}`,
		// of a run that is not there
		`{"slots":[{"slot":0,"cap":4,"blocks":"AQAAAAEAAAA="}]}`,
		// more than it has
		`{"runs":[{"hashes":"AQAAAAAAAAA="}],"slots":[{"slot":0,"cap":4,"blocks":"AgAAAAEAAAA="}]}`,
		// twice
		`{"runs":[{"hashes":"AQAAAAAAAAA="}],"slots":[{"slot":0,"cap":4,"blocks":"AQAAAAEAAAABAAAAAQAAAA=="}]}`,
		// in both
		`{"runs":[{"hashes":"AQAAAAAAAAA="}],"slots":[{"slot":0,"cap":4,"blocks":"AQAAAAEAAAA=",` +
			`"spill":"AQAAAAEAAAA="}]}`,
	} {
		if err := (&approxPrefix{}).LoadState([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	a := &approxPrefix{}
	if err := a.LoadState([]byte(
		`{"runs":[{"hashes":"AQAAAAAAAAA="}],"slots":[{"slot":0,"cap":4,"blocks":"AQAAAAEAAAA="}]}`)); err != nil ||
		a.index.total != 1 {
		t.Errorf("%v, %d pairs", err, a.index.total)
	}
}
