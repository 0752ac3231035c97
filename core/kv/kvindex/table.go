package kvindex

import (
	"math/bits"
	"sync/atomic"
)

// table maps 64-bit names to 64-bit words for one writer and any number of readers, which take no lock and never wait:
// a slot's name never changes once it is set, and a word is one atomic load. A removed name keeps its slot with the
// word 0 until its shard is rewritten. Shards keep each rewriting short; a reader in the old slots finishes there.
type table struct {
	shards [tableShards]tableShard
	live   int // names whose word is not 0
}

const (
	tableShards = 64
	shardBits   = 6
	firstSlots  = 8
)

type tableShard struct {
	slots atomic.Pointer[[]tableSlot]
	used  int // slots with a name
	live  int
}

// tableSlot keeps name and word in one cache line, so that a look-up in a large table costs one miss.
type tableSlot struct {
	name uint64 // 0 is an empty slot
	word uint64
}

// nameOf keeps 0 free for empty slots. The one name that moves shares its
// place with another, which costs a wrong answer once in 2^64 names.
func nameOf(v uint64) uint64 {
	if v == 0 {
		return 0x9e3779b97f4a7c15
	}
	return v
}

// place spreads names that are not hashes, too: engines may count theirs.
func tablePlace(name uint64) (shard int, spread uint64) {
	h := name * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return int(h >> (64 - shardBits)), h << shardBits
}

func firstSlot(s []tableSlot, spread uint64) int {
	hi, _ := bits.Mul64(spread, uint64(len(s)))
	return int(hi)
}

// get returns the number of a name, 0 if the name has none. Any goroutine may call it.
func (t *table) get(name uint64) uint64 {
	shard, spread := tablePlace(name)
	p := t.shards[shard].slots.Load()
	if p == nil {
		return 0
	}
	s := *p
	for i := firstSlot(s, spread); ; {
		switch atomic.LoadUint64(&s[i].name) {
		case name:
			return atomic.LoadUint64(&s[i].word)
		case 0:
			return 0
		}
		if i++; i == len(s) {
			i = 0
		}
	}
}

// warm brings a name's place into the processor's cache. Touching a run of
// places before working on the first lets the memory fetch many at once
// instead of one after another; in a large table that is most of the time. The
// result only keeps the compiler from leaving the load out.
func (t *table) warm(name uint64) uint64 {
	shard, spread := tablePlace(name)
	p := t.shards[shard].slots.Load()
	if p == nil {
		return 0
	}
	s := *p
	i := firstSlot(s, spread)
	// Probing often ends in the next line.
	return s[i].name + s[min(i+3, len(s)-1)].name
}

// tableRef is the writer's hold on one slot, good until the next slot call.
// The slot may be an empty one that set fills.
type tableRef struct {
	shard *tableShard
	*tableSlot
	of uint64 // the name that the slot has, or will have
}

// find returns the slot of a name that is there.
func (t *table) find(name uint64) (tableRef, bool) {
	shard, spread := tablePlace(name)
	sh := &t.shards[shard]
	p := sh.slots.Load()
	if p == nil {
		return tableRef{}, false
	}
	s := *p
	for i := firstSlot(s, spread); ; {
		switch s[i].name {
		case name:
			return tableRef{sh, &s[i], name}, true
		case 0:
			return tableRef{}, false
		}
		if i++; i == len(s) {
			i = 0
		}
	}
}

// slot returns the slot of a name, or the empty one where it belongs.
func (t *table) slot(name uint64) tableRef {
	shard, spread := tablePlace(name)
	sh := &t.shards[shard]
	p := sh.slots.Load()
	if p == nil || 5*(sh.used+1) > 4*len(*p) {
		p = sh.rewrite()
	}
	s := *p
	for i := firstSlot(s, spread); ; {
		if n := s[i].name; n == name || n == 0 {
			return tableRef{sh, &s[i], name}
		}
		if i++; i == len(s) {
			i = 0
		}
	}
}

// set replaces a slot's word; 0 removes the name. A new name is seen with its
// word or not at all.
func (t *table) set(r tableRef, word uint64) {
	if r.name == 0 {
		if word == 0 {
			return
		}
		r.tableSlot.word = word // readers look at the name first
		atomic.StoreUint64(&r.tableSlot.name, r.of)
		r.shard.used++
		r.shard.live++
		t.live++
		return
	}
	was := r.word
	if was == 0 && word != 0 {
		r.shard.live++
		t.live++
	}
	if was != 0 && word == 0 {
		r.shard.live--
		t.live--
	}
	atomic.StoreUint64(&r.word, word)
}

// rewrite makes new slots for a shard, two fifths full, without removed names.
// Places follow the order of the spread names, so it walks both in order.
func (sh *tableShard) rewrite() *[]tableSlot {
	s := make([]tableSlot, max(firstSlots, 5*(sh.live+1)/2))
	sh.used = 0
	if old := sh.slots.Load(); old != nil {
		for _, slot := range *old {
			if slot.name == 0 || slot.word == 0 {
				continue
			}
			_, spread := tablePlace(slot.name)
			i := firstSlot(s, spread)
			for s[i].name != 0 {
				if i++; i == len(s) {
					i = 0
				}
			}
			s[i] = slot
			sh.used++
		}
	}
	sh.slots.Store(&s)
	return &s
}
