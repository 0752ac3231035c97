package dataproducer

import (
	"sort"

	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// prefixIndex remembers which blocks each endpoint has been sent: per endpoint
// an LRU of block hashes, and per block the endpoints that hold it. Endpoints
// are slots of the picker's Pool. A block with one holder, the usual case,
// costs about 50 bytes in all.
type prefixIndex struct {
	blocks map[uint64]holders
	lrus   []*blockLRU // by slot
	total  int         // (slot, block) pairs
	alone  uint64      // blocks so far that were given a hash because there are too many of them
}

// holders are the slots that have a block, with their LRU nodes: one inline,
// or several in order of slot.
type holders struct {
	one  holder
	many *[]holder // nil: there is only one
}

type holder struct {
	slot uint32
	node uint32 // spilled: in no LRU any more
}

const spilled = 0

// minSpill is how many blocks a slot's spill holds at least: that of a slot of
// the usual capacity.
const minSpill = 4 * defaultLRUCapacity

// blockLRU is a doubly linked list in a slab; node 0 is its ring's anchor. A node is a
// block, or a run of blocks that no other prompt has, which need no hashes.
type blockLRU struct {
	nodes []lruNode
	runs  []uint32 // by node, how many blocks its run has left, 0 for a block; as long as it has to be
	free  uint32
	len   int
	cap   int
	spill []uint64 // blocks that their own prompt pushed out, oldest first
}

type lruNode struct {
	hash       uint64
	prev, next uint32
}

func newPrefixIndex() *prefixIndex { return &prefixIndex{blocks: map[uint64]holders{}} }

func search(list []holder, slot uint32) (int, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].slot >= slot })
	return i, i < len(list) && list[i].slot == slot
}

// node is the slot's node for a block.
func (x *prefixIndex) node(hash uint64, slot uint32) (node uint32, ok bool) {
	e, ok := x.blocks[hash]
	switch {
	case !ok:
		return 0, false
	case e.many == nil:
		return e.one.node, e.one.slot == slot
	}
	i, ok := search(*e.many, slot)
	if !ok {
		return 0, false
	}
	return (*e.many)[i].node, true
}

// set makes slot a holder of a block, or changes its node.
func (x *prefixIndex) set(hash uint64, slot, node uint32) {
	e, ok := x.blocks[hash]
	h := holder{slot, node}
	switch {
	case !ok, e.many == nil && e.one.slot == slot:
		if !ok {
			x.total++
		}
		x.blocks[hash] = holders{one: h}
	case e.many == nil:
		list := []holder{e.one, h}
		if h.slot < e.one.slot {
			list[0], list[1] = h, e.one
		}
		x.blocks[hash] = holders{many: &list}
		x.total++
	default:
		i, ok := search(*e.many, slot)
		if ok {
			(*e.many)[i].node = node
			return
		}
		list := append(*e.many, holder{})
		copy(list[i+1:], list[i:])
		list[i] = h
		*e.many = list
		x.total++
	}
}

// drop ends a slot's holding of a block.
func (x *prefixIndex) drop(hash uint64, slot uint32) {
	e, ok := x.blocks[hash]
	switch {
	case !ok:
	case e.many == nil:
		if e.one.slot == slot {
			delete(x.blocks, hash)
			x.total--
		}
	default:
		if i, ok := search(*e.many, slot); ok {
			list := append((*e.many)[:i], (*e.many)[i+1:]...)
			x.total--
			if len(list) == 1 {
				x.blocks[hash] = holders{one: list[0]}
				return
			}
			*e.many = list
		}
	}
}

// match counts, for each slot, how many of the blocks it holds, and appends those
// that hold any to holding. It stops at the first block that nobody holds, as the
// real index does.
func (x *prefixIndex) match(hashes []uint64, count, holding []int32) []int32 {
	for _, h := range hashes {
		e, ok := x.blocks[h]
		if !ok {
			break
		}
		if e.many == nil {
			if count[e.one.slot]++; count[e.one.slot] == 1 {
				holding = append(holding, int32(e.one.slot))
			}
			continue
		}
		for _, holder := range *e.many {
			if count[holder.slot]++; count[holder.slot] == 1 {
				holding = append(holding, int32(holder.slot))
			}
		}
	}
	return holding
}

func (x *prefixIndex) lru(slot int, capacity int) *blockLRU {
	for len(x.lrus) <= slot {
		x.lrus = append(x.lrus, nil)
	}
	l := x.lrus[slot]
	if l == nil {
		l = &blockLRU{nodes: make([]lruNode, 1, 64), cap: capacity}
		x.lrus[slot] = l
	}
	return l
}

// add makes the blocks the slot's most recent ones, and behind them so many that
// no other prompt has. The capacity is that of the first call for a slot. What a
// prompt longer than the capacity pushes out of its own beginning still counts as
// held, as in the real index, but only for as long as the slot's spill has room.
func (x *prefixIndex) add(hashes []uint64, alone, slot, capacity int) {
	l := x.lru(slot, max(capacity, 1))
	s := uint32(slot)
	if len(hashes)+alone > l.cap { // which of them go is told by their hashes
		hashes = append([]uint64(nil), hashes...)
		for ; alone > 0; alone-- {
			x.alone++
			hashes = append(hashes, parse.Mix(x.alone, aloneSeed))
		}
	}
	for n, h := range hashes {
		if node, ok := x.node(h, s); ok && node != spilled {
			l.touch(node)
			continue
		}
		x.set(h, s, l.push(h))
		if l.len <= l.cap {
			continue
		}
		own := n+1 >= l.len // all that is left came with this prompt
		old, run := l.pop()
		switch {
		case run:
			x.total--
		case !own:
			x.drop(old, s)
		default:
			x.set(old, s, spilled)
			l.spill = append(l.spill, old)
			if len(l.spill) > max(4*l.cap, minSpill) {
				x.unspill(l, s)
			}
		}
	}
	if alone == 0 {
		return
	}
	l.run(l.push(0), alone)
	for x.total += alone; l.len > l.cap; {
		if old, run := l.pop(); run {
			x.total--
		} else {
			x.drop(old, s)
		}
	}
}

// aloneSeed is what hashes are made of that stand for none.
const aloneSeed = 0x616c6f6e65

// unspill forgets the oldest spilled block, unless it came back into the LRU.
func (x *prefixIndex) unspill(l *blockLRU, slot uint32) {
	oldest := l.spill[0]
	l.spill = l.spill[1:]
	if node, ok := x.node(oldest, slot); ok && node == spilled {
		x.drop(oldest, slot)
	}
}

// forget takes a slot out altogether.
func (x *prefixIndex) forget(slot int) {
	if slot >= len(x.lrus) || x.lrus[slot] == nil {
		return
	}
	l := x.lrus[slot]
	for l.len > 0 {
		if hash, run := l.pop(); run {
			x.total--
		} else {
			x.drop(hash, uint32(slot))
		}
	}
	for len(l.spill) > 0 {
		x.unspill(l, uint32(slot))
	}
	x.lrus[slot] = nil
}

// held is how many blocks a slot's LRU holds.
func (x *prefixIndex) held(slot int) int {
	if slot >= len(x.lrus) || x.lrus[slot] == nil {
		return 0
	}
	return x.lrus[slot].len
}

func (l *blockLRU) unlink(n uint32) {
	p, q := l.nodes[n].prev, l.nodes[n].next
	l.nodes[p].next, l.nodes[q].prev = q, p
}

func (l *blockLRU) front(n uint32) {
	first := l.nodes[0].next
	l.nodes[n].prev, l.nodes[n].next = 0, first
	l.nodes[first].prev = n
	l.nodes[0].next = n
}

func (l *blockLRU) touch(n uint32) {
	if l.nodes[0].next != n {
		l.unlink(n)
		l.front(n)
	}
}

func (l *blockLRU) push(hash uint64) uint32 {
	n := l.free
	if n != 0 {
		l.free = l.nodes[n].next
	} else {
		l.nodes = append(l.nodes, lruNode{})
		n = uint32(len(l.nodes) - 1)
	}
	l.nodes[n].hash = hash
	l.front(n)
	l.len++
	return n
}

// run makes the block that was pushed last a run of n.
func (l *blockLRU) run(node uint32, n int) {
	for len(l.runs) <= int(node) {
		l.runs = append(l.runs, 0)
	}
	l.runs[node] = uint32(n)
	l.len += n - 1
}

// pop takes the oldest block out; one of a run has no hash.
func (l *blockLRU) pop() (hash uint64, run bool) {
	n := l.nodes[0].prev
	l.len--
	if int(n) < len(l.runs) && l.runs[n] > 0 {
		run = true
		if l.runs[n]--; l.runs[n] > 0 {
			return 0, true
		}
	}
	l.unlink(n)
	l.nodes[n].next = l.free
	l.free = n
	return l.nodes[n].hash, run
}
