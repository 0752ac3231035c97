package dataproducer

import (
	"slices"
	"sort"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// prefixIndex remembers which blocks each endpoint has been sent: per endpoint an LRU of
// blocks, and per block the endpoints that hold it. Endpoints are slots of the
// picker's Pool. Blocks are kept as runs, in a tree: what prompts have in common, and
// what is behind it. A hash stands for a block and for all that is before it, so a
// block is in one run only. All of a run that a prompt has become a slot's most recent
// blocks together, and go block by block from its beginning, as the real index has them go.
type prefixIndex struct {
	runs   []run             // runs[0] stands for none
	unused []uint32          // of runs
	first  map[uint64]uint32 // a run by its first block
	lrus   []*blockLRU       // by slot
	total  int               // (slot, block) pairs
}

// run is a sequence of blocks that follow each other in every prompt that has any of them. It exists as long as a slot
// holds a part of it or of its successors.
type run struct {
	hashes   []uint64
	parent   uint32 // the run before it, 0 for none
	children uint32
	one      [1]holder
	many     *[]holder // nil: at most one holder; in order of slot
}

// holder is a slot that has a part of a run. The slot's own entries have the part's size.
type holder struct {
	slot    uint32 // slot plus one; 0 is none
	entry   uint32 // in its LRU: the last blocks of the run; 0: none
	spilled uint32 // in its spill: the first blocks; 0: none
}

// minSpill is the smallest size of a slot's spill, in blocks. A slot with the default capacity uses it.
const minSpill = 4 * defaultLRUCapacity

// blockLRU is two doubly linked lists in a slab: entries[recent] is the anchor of the LRU's ring, entries[spill] the
// anchor of the blocks that prompts longer than the capacity pushed out of their own beginning.
type blockLRU struct {
	entries []entry
	free    uint32
	len     int // blocks of the LRU,
	spilled int // and of the spill
	cap     int
}

const (
	recent = iota
	spill
	anchors
)

// entry is blocks of a run, or so many that no other prompt has.
type entry struct {
	run        uint32 // 0: no other prompt has them
	blocks     uint32
	prev, next uint32
}

func newPrefixIndex() *prefixIndex {
	return &prefixIndex{runs: make([]run, 1), first: map[uint64]uint32{}}
}

// holders returns a run's holders. They are valid until the next change.
func (r *run) holders() []holder {
	switch {
	case r.many != nil:
		return *r.many
	case r.one[0].slot == 0:
		return nil
	}
	return r.one[:]
}

// holder returns a slot's place among the holders of a run, where it is one.
func (r *run) holder(slot uint32) *holder {
	list := r.holders()
	if i := sort.Search(len(list), func(i int) bool { return list[i].slot > slot }); i < len(list) &&
		list[i].slot == slot+1 {
		return &list[i]
	}
	return nil
}

// hold is holder, and makes the slot one.
func (r *run) hold(slot uint32) *holder {
	h := holder{slot: slot + 1}
	switch {
	case r.many == nil && r.one[0].slot == 0:
		r.one[0] = h
		return &r.one[0]
	case r.many == nil && r.one[0].slot == h.slot:
		return &r.one[0]
	case r.many == nil:
		r.many = &[]holder{r.one[0]}
		r.one[0] = holder{}
	}
	list := *r.many
	i := sort.Search(len(list), func(i int) bool { return list[i].slot >= h.slot })
	if i == len(list) || list[i].slot != h.slot {
		*r.many = slices.Insert(list, i, h)
	}
	return &(*r.many)[i]
}

// leave removes a slot that no longer holds a part of a run, and the run if no slot holds any.
func (x *prefixIndex) leave(id, slot uint32) {
	r := &x.runs[id]
	h := r.holder(slot)
	if h == nil || h.entry != 0 || h.spilled != 0 {
		return
	}
	if r.many == nil {
		r.one[0] = holder{}
		x.prune(id)
		return
	}
	*r.many = slices.DeleteFunc(*r.many, func(other holder) bool { return other.slot == slot+1 })
	if len(*r.many) == 1 {
		r.one[0], r.many = (*r.many)[0], nil
	}
}

// prune removes a run if no slot holds a part of it or of its successors.
func (x *prefixIndex) prune(id uint32) {
	for id != 0 {
		r := &x.runs[id]
		if r.children > 0 || len(r.holders()) > 0 {
			return
		}
		delete(x.first, r.hashes[0])
		parent := r.parent
		*r = run{}
		x.unused = append(x.unused, id)
		if id = parent; id != 0 {
			x.runs[id].children--
		}
	}
}

func (x *prefixIndex) newRun(r run) uint32 {
	if n := len(x.unused); n > 0 {
		id := x.unused[n-1]
		x.unused = x.unused[:n-1]
		x.runs[id] = r
		return id
	}
	x.runs = append(x.runs, r)
	return uint32(len(x.runs) - 1)
}

// split cuts a run after its first n blocks, and is the run of these. What is behind
// them stays what it was.
func (x *prefixIndex) split(id, n uint32) uint32 {
	hashes := x.runs[id].hashes
	j := x.newRun(run{hashes: hashes[:n:n], parent: x.runs[id].parent, children: 1})
	r := &x.runs[id]
	r.hashes, r.parent = hashes[n:], j
	x.first[hashes[0]], x.first[hashes[n]] = j, id
	var gone []uint32
	for i := range r.holders() {
		h := &r.holders()[i]
		slot := h.slot - 1
		l := x.lrus[slot]
		rest := uint32(len(r.hashes))
		if h.entry != 0 && l.entries[h.entry].blocks > rest { // the beginning is older
			e := l.newEntry(entry{j, l.entries[h.entry].blocks - rest, 0, 0})
			l.entries[h.entry].blocks = rest
			l.linkBefore(l.entries[h.entry].next, e)
			x.runs[j].hold(slot).entry = e
		}
		if h.spilled == 0 {
			continue
		}
		of := l.entries[h.spilled].blocks
		if of <= n {
			l.entries[h.spilled].run = j
			x.runs[j].hold(slot).spilled = h.spilled
			if h.spilled = 0; h.entry == 0 {
				gone = append(gone, slot)
			}
			continue
		}
		e := l.newEntry(entry{j, n, 0, 0})
		l.entries[h.spilled].blocks = of - n
		l.linkBefore(l.entries[h.spilled].next, e)
		x.runs[j].hold(slot).spilled = e
	}
	x.runs[j].children++ // it stays, whatever goes
	for _, slot := range gone {
		x.leave(id, slot)
	}
	x.runs[j].children--
	return j
}

// walk visits the runs of a prompt and creates the missing ones. Each run ends at its own end or at the beginning of
// another. visit may remove later runs.
func (x *prefixIndex) walk(hashes []uint64, visit func(id uint32)) {
	before := uint32(0)
	for len(hashes) > 0 {
		id, known := x.first[hashes[0]]
		if !known {
			id = x.newRun(run{hashes: slices.Clone(hashes), parent: before})
			x.first[hashes[0]] = id
			if before != 0 {
				x.runs[before].children++
			}
		}
		n := same(x.runs[id].hashes, hashes)
		if n < len(x.runs[id].hashes) {
			id = x.split(id, uint32(n))
		}
		x.runs[id].children++ // it stays
		visit(id)
		x.runs[id].children--
		before, hashes = id, hashes[n:]
	}
}

// same returns how many blocks two lists begin with in common.
func same(a, b []uint64) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// match counts the blocks that each slot holds, and appends the slots that hold any to holding. It stops at the first
// block that no slot holds, as the real index does.
func (x *prefixIndex) match(hashes []uint64, count, holding []int32) []int32 {
	for len(hashes) > 0 {
		r := &x.runs[x.first[hashes[0]]]
		n := same(r.hashes, hashes)
		list := r.holders()
		first, last := n, 0 // a slot has all blocks from first on, and a slot has those before last
		for i := range list {
			from, to := x.part(r, &list[i])
			first, last = min(first, from), max(last, to)
		}
		held := n
		if last < first {
			held = last
		}
		for i := range list {
			from, to := x.part(r, &list[i])
			slot := list[i].slot - 1
			if has := min(to, held) + max(0, held-from); has > 0 {
				if count[slot] == 0 {
					holding = append(holding, int32(slot))
				}
				count[slot] += int32(has)
			}
		}
		if held < n || n < len(r.hashes) || n == 0 {
			break
		}
		hashes = hashes[n:]
	}
	return holding
}

// part returns the part of a run that a slot holds: the blocks from from on, and those before to.
func (x *prefixIndex) part(r *run, h *holder) (from, to int) {
	l := x.lrus[h.slot-1]
	if from = len(r.hashes); h.entry != 0 {
		from -= int(l.entries[h.entry].blocks)
	}
	if h.spilled != 0 {
		to = int(l.entries[h.spilled].blocks)
	}
	return from, to
}

func (x *prefixIndex) lru(slot int, capacity int) *blockLRU {
	l := picker.AtSlot(&x.lrus, slot)
	if *l == nil {
		*l = &blockLRU{entries: make([]entry, anchors, 16), cap: capacity}
		(*l).entries[spill] = entry{prev: spill, next: spill}
	}
	return *l
}

// add makes the blocks the slot's most recent ones, followed by so many blocks that no other prompt has. The first call
// for a slot sets its capacity. Blocks that a prompt longer than the capacity pushes out of its own beginning still
// count as held, as in the real index, but only as long as the slot's spill has space.
func (x *prefixIndex) add(hashes []uint64, alone, slot, capacity int) {
	l, s := x.lru(slot, max(capacity, 1)), uint32(slot)
	if over := len(hashes) + alone - l.cap; over > 0 {
		x.shrink(l, s, 0)
		out := min(over, len(hashes))
		x.walk(hashes[:out], func(id uint32) { x.spill(l, s, id) })
		if over > out {
			l.link(spill, l.newEntry(entry{blocks: uint32(over - out)}))
			l.spilled, x.total = l.spilled+over-out, x.total+over-out
		}
		for l.spilled > max(4*l.cap, minSpill) && l.entries[l.entries[spill].prev].prev != spill {
			x.unspill(l, s, l.entries[spill].prev)
		}
		x.append(l, s, hashes, out)
		x.alone(l, s, min(alone, l.cap))
		return
	}
	x.append(l, s, hashes, 0)
	x.alone(l, s, alone)
}

// append adds the blocks of a prompt from number from on.
func (x *prefixIndex) append(l *blockLRU, slot uint32, hashes []uint64, from int) {
	at := 0
	x.walk(hashes, func(id uint32) {
		if at += len(x.runs[id].hashes); at > from {
			x.touch(l, slot, id)
		}
	})
}

// touch makes a run's blocks the most recent ones, one after the other: each that is new
// pushes out the oldest, which may be one of the same run that comes later.
func (x *prefixIndex) touch(l *blockLRU, slot, id uint32) {
	h := x.runs[id].hold(slot)
	if h.spilled != 0 {
		x.drop(l, h.spilled)
		h.spilled = 0
	}
	n := len(x.runs[id].hashes)
	pushed := 0
	for {
		had := 0
		if h.entry != 0 {
			had = int(l.entries[h.entry].blocks)
		}
		more := n - had - pushed
		if more <= 0 {
			break
		}
		pushed += more
		l.len, x.total = l.len+more, x.total+more
		x.shrink(l, slot, l.cap)
		h = x.runs[id].hold(slot) // it may have had nothing left
	}
	e := h.entry
	if e == 0 {
		e = l.newEntry(entry{run: id})
		h.entry = e
	} else {
		l.unlink(e)
	}
	l.entries[e].blocks = uint32(n)
	l.link(recent, e)
}

// alone adds blocks that no other prompt has.
func (x *prefixIndex) alone(l *blockLRU, slot uint32, n int) {
	if n > 0 {
		l.link(recent, l.newEntry(entry{blocks: uint32(n)}))
		l.len, x.total = l.len+n, x.total+n
		x.shrink(l, slot, l.cap)
	}
}

// shrink takes the oldest blocks out of an LRU until there are so many.
func (x *prefixIndex) shrink(l *blockLRU, slot uint32, to int) {
	for l.len > to {
		i := l.entries[recent].prev
		e := &l.entries[i]
		n := min(uint32(l.len-to), e.blocks)
		e.blocks -= n
		l.len, x.total = l.len-int(n), x.total-int(n)
		if e.blocks > 0 {
			return
		}
		id := e.run
		l.remove(i)
		if id != 0 {
			x.runs[id].holder(slot).entry = 0
			x.leave(id, slot)
		}
	}
}

// spill makes a slot hold a run that has no block in the slot's LRU.
func (x *prefixIndex) spill(l *blockLRU, slot, id uint32) {
	h, n := x.runs[id].hold(slot), len(x.runs[id].hashes)
	if h.spilled != 0 {
		x.drop(l, h.spilled)
	}
	h.spilled = l.newEntry(entry{run: id, blocks: uint32(n)})
	l.link(spill, h.spilled)
	l.spilled, x.total = l.spilled+n, x.total+n
}

// drop takes an entry out of the spill.
func (x *prefixIndex) drop(l *blockLRU, e uint32) {
	n := int(l.entries[e].blocks)
	l.spilled, x.total = l.spilled-n, x.total-n
	l.remove(e)
}

// unspill forgets blocks of the spill.
func (x *prefixIndex) unspill(l *blockLRU, slot, e uint32) {
	id := l.entries[e].run
	x.drop(l, e)
	if id != 0 {
		x.runs[id].holder(slot).spilled = 0
		x.leave(id, slot)
	}
}

// forget takes a slot out altogether.
func (x *prefixIndex) forget(slot int) {
	if slot >= len(x.lrus) || x.lrus[slot] == nil {
		return
	}
	l := x.lrus[slot]
	x.shrink(l, uint32(slot), 0)
	for l.spilled > 0 {
		x.unspill(l, uint32(slot), l.entries[spill].prev)
	}
	x.lrus[slot] = nil
}

// blocks returns how many blocks a slot's LRU holds.
func (x *prefixIndex) blocks(slot int) int {
	if slot >= len(x.lrus) || x.lrus[slot] == nil {
		return 0
	}
	return x.lrus[slot].len
}

func (l *blockLRU) unlink(n uint32) {
	p, q := l.entries[n].prev, l.entries[n].next
	l.entries[p].next, l.entries[q].prev = q, p
}

// link puts an entry at the front of a ring.
func (l *blockLRU) link(ring, n uint32) { l.linkBefore(l.entries[ring].next, n) }

// linkBefore puts an entry into a ring before another one, or at its end before its anchor.
func (l *blockLRU) linkBefore(next, n uint32) {
	prev := l.entries[next].prev
	l.entries[n].prev, l.entries[n].next = prev, next
	l.entries[prev].next, l.entries[next].prev = n, n
}

func (l *blockLRU) newEntry(e entry) uint32 {
	if n := l.free; n != 0 {
		l.free = l.entries[n].next
		l.entries[n] = e
		return n
	}
	l.entries = append(l.entries, e)
	return uint32(len(l.entries) - 1)
}

// remove takes an entry out of its ring, to be used again.
func (l *blockLRU) remove(n uint32) {
	l.unlink(n)
	l.entries[n] = entry{next: l.free}
	l.free = n
}
