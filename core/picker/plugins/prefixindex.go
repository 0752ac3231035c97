package plugins

import (
	"sort"
)

// prefixIndex remembers which blocks each endpoint has been sent: per endpoint
// an LRU of block hashes, and per block the endpoints that hold it. Endpoints
// are slots of the picker's Pool. One holder of a block costs about 40 bytes.
type prefixIndex struct {
	blocks map[uint64]*holders
	lrus   []*blockLRU // by slot
	spare  *holders    // an emptied entry to use again
	total  int
}

// holders are the slots that have a block, in order, with their LRU node.
type holders struct {
	list []holder
}

type holder struct {
	slot uint32
	node uint32
}

// blockLRU is a doubly linked list in a slab; node 0 is its ring's anchor.
type blockLRU struct {
	nodes []lruNode
	free  uint32
	len   int
	cap   int
	spill []uint64 // blocks that their own prompt pushed out, oldest first
}

type lruNode struct {
	hash       uint64
	prev, next uint32
}

func newPrefixIndex() *prefixIndex { return &prefixIndex{blocks: map[uint64]*holders{}} }

func (h *holders) find(slot uint32) (int, bool) {
	i := sort.Search(len(h.list), func(i int) bool { return h.list[i].slot >= slot })
	return i, i < len(h.list) && h.list[i].slot == slot
}

// match counts, for each slot, how many of the blocks it holds. It stops at
// the first block that nobody holds, as the real index does.
func (x *prefixIndex) match(hashes []uint64, count []int32) {
	for _, h := range hashes {
		e := x.blocks[h]
		if e == nil {
			return
		}
		for _, holder := range e.list {
			if int(holder.slot) < len(count) {
				count[holder.slot]++
			}
		}
	}
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

// add makes the blocks the slot's most recent ones. The capacity is that of
// the first call for a slot. What a prompt longer than the capacity pushes out
// of its own beginning still counts as held, as in the real index, but only
// for as long as the slot's spill has room.
func (x *prefixIndex) add(hashes []uint64, slot, capacity int) {
	l := x.lru(slot, max(capacity, 1))
	touched := 0
	for _, h := range hashes {
		touched++
		e := x.blocks[h]
		if e == nil {
			if e = x.spare; e != nil {
				x.spare = nil
			} else {
				e = &holders{}
			}
			x.blocks[h] = e
		}
		i, ok := e.find(uint32(slot))
		if ok && e.list[i].node != spilled {
			l.touch(e.list[i].node)
			continue
		}
		node := l.push(h)
		if ok {
			e.list[i].node = node
		} else {
			e.list = append(e.list, holder{})
			copy(e.list[i+1:], e.list[i:])
			e.list[i] = holder{uint32(slot), node}
			x.total++
		}
		if l.len > l.cap {
			own := touched >= l.len // all that is left came with this prompt
			if old := l.pop(); own {
				x.spill(l, old, slot)
			} else {
				x.drop(old, slot)
			}
		}
	}
}

// spilled marks a holder whose block is in no LRU any more.
const spilled = 0

func (x *prefixIndex) spill(l *blockLRU, hash uint64, slot int) {
	e := x.blocks[hash]
	if e == nil {
		return
	}
	i, ok := e.find(uint32(slot))
	if !ok {
		return
	}
	e.list[i].node = spilled
	l.spill = append(l.spill, hash)
	if len(l.spill) > 4*l.cap {
		x.unspill(l, slot)
	}
}

// unspill forgets the oldest spilled block, unless it came back into the LRU.
func (x *prefixIndex) unspill(l *blockLRU, slot int) {
	oldest := l.spill[0]
	l.spill = l.spill[1:]
	if e := x.blocks[oldest]; e != nil {
		if i, ok := e.find(uint32(slot)); ok && e.list[i].node == spilled {
			x.drop(oldest, slot)
		}
	}
}

func (x *prefixIndex) drop(hash uint64, slot int) {
	e := x.blocks[hash]
	if e == nil {
		return
	}
	if i, ok := e.find(uint32(slot)); ok {
		e.list = append(e.list[:i], e.list[i+1:]...)
		x.total--
	}
	if len(e.list) == 0 {
		delete(x.blocks, hash)
		x.spare = e
	}
}

// forget takes a slot out altogether.
func (x *prefixIndex) forget(slot int) {
	if slot >= len(x.lrus) || x.lrus[slot] == nil {
		return
	}
	for l := x.lrus[slot]; l.len > 0; {
		x.drop(l.pop(), slot)
	}
	for l := x.lrus[slot]; len(l.spill) > 0; {
		x.unspill(l, slot)
	}
	x.lrus[slot] = nil
}

// held is how many blocks a slot holds.
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

func (l *blockLRU) pop() uint64 {
	n := l.nodes[0].prev
	l.unlink(n)
	l.nodes[n].next = l.free
	l.free = n
	l.len--
	return l.nodes[n].hash
}
