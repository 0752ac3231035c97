package kvindex

import (
	"slices"
	"sync/atomic"

	"github.com/windtunnel/windtunnel/core/kv"
)

// holder is one pod's share in a block: the pod's number and, as a bit set,
// the places (medium and group) where it keeps the block.
type holder uint32

const (
	placeBits = 16
	maxPlaces = placeBits
	// maxPods leaves a holder 31 bits, so that it fits into one word with the
	// number of its record and a mark.
	maxPods    = 1<<15 - 1
	holderBits = 31
	holderMask = 1<<holderBits - 1
	wordInList = 1 << 63
)

func newHolder(pod uint16, places uint16) holder { return holder(pod)<<placeBits | holder(places) }

func (h holder) pod() uint16    { return uint16(h >> placeBits) }
func (h holder) places() uint16 { return uint16(h) }

// A block's word is its only holder and that pair's record, as most blocks
// have just one; or it refers to a holderList.
func oneHolder(h holder, record uint32) uint64 { return uint64(record)<<holderBits | uint64(h) }

func wordHolder(w uint64) holder { return holder(w & holderMask) }

func wordRecord(w uint64) uint32 { return uint32(w >> holderBits) }

// holderList is the target of a block's word when several pods hold the block. Holders never change once they are
// published. A reader that finds another block's list sees by the name that it came too late, and reads again.
type holderList struct {
	name    uint64
	holders []holder
	head    uint32 // the block's first record; the writer's alone
}

const listChunk = 256

// holderLists numbers the lists. The chunks never move, since readers may look at any time.
type holderLists struct {
	chunks atomic.Pointer[[]*[listChunk]atomic.Pointer[holderList]]
	free   []uint32
	made   uint32
}

func (l *holderLists) get(id uint32) *holderList {
	return (*l.chunks.Load())[id/listChunk][id%listChunk].Load()
}

func (l *holderLists) set(id uint32, list *holderList) {
	(*l.chunks.Load())[id/listChunk][id%listChunk].Store(list)
}

func (l *holderLists) add(list *holderList) uint32 {
	if n := len(l.free); n > 0 {
		id := l.free[n-1]
		l.free = l.free[:n-1]
		l.set(id, list)
		return id
	}
	id := l.made
	if id%listChunk == 0 {
		var all []*[listChunk]atomic.Pointer[holderList]
		if old := l.chunks.Load(); old != nil {
			all = append(all, *old...)
		}
		all = append(all, new([listChunk]atomic.Pointer[holderList]))
		l.chunks.Store(&all)
	}
	l.made++
	l.set(id, list)
	return id
}

func (l *holderLists) drop(id uint32) {
	l.set(id, nil)
	l.free = append(l.free, id)
}

// blockSet is key → holders, for one writer and many readers.
type blockSet struct {
	table table
	lists holderLists
}

// holders returns the pods that hold a block, at one instant. The result may lie
// in buf and must not be changed. Any goroutine may call it.
func (b *blockSet) holders(key kv.Key, buf *[1]holder) []holder {
	name := nameOf(uint64(key))
	for {
		w := b.table.get(name)
		switch {
		case w == 0:
			return nil
		case w&wordInList == 0:
			buf[0] = wordHolder(w)
			return buf[:]
		}
		if l := b.lists.get(uint32(w)); l != nil && l.name == name {
			return l.holders
		} // else the list went to another block between the two loads
	}
}

// placesOf returns the places at which a pod keeps the block of a slot; 0 if it does not. Only the writer calls this
// and the following methods.
func (b *blockSet) placesOf(p tableRef, pod uint16) uint16 {
	if p.word&wordInList == 0 {
		if h := wordHolder(p.word); h.pod() == pod {
			return h.places()
		}
		return 0
	}
	for _, h := range b.lists.get(uint32(p.word)).holders {
		if h.pod() == pod {
			return h.places()
		}
	}
	return 0
}

// head returns the block's first record, 0 if no pod holds it.
func (b *blockSet) head(p tableRef) uint32 {
	if p.word&wordInList == 0 {
		return wordRecord(p.word)
	}
	return b.lists.get(uint32(p.word)).head
}

// put sets where a pod keeps the block of a slot, and the block's first
// record; places 0 takes the pod away.
func (b *blockSet) put(p tableRef, pod, places uint16, head uint32) {
	w := p.word
	if w&wordInList == 0 {
		switch only := wordHolder(w); {
		case places == 0:
			b.table.set(p, 0)
		case w == 0 || only.pod() == pod:
			b.table.set(p, oneHolder(newHolder(pod, places), head))
		default:
			list := append(make([]holder, 0, 4), only, newHolder(pod, places))
			b.table.set(p, wordInList|uint64(b.lists.add(&holderList{p.of, list, head})))
		}
		return
	}
	id := uint32(w)
	old := b.lists.get(id).holders
	switch at := slices.IndexFunc(old, func(h holder) bool { return h.pod() == pod }); {
	case at < 0:
		// Older readers see the old length only, so the room behind it is ours.
		b.lists.set(id, &holderList{p.of, append(old, newHolder(pod, places)), head})
	case places != 0:
		list := append(make([]holder, 0, cap(old)), old...)
		list[at] = newHolder(pod, places)
		b.lists.set(id, &holderList{p.of, list, head})
	case len(old) == 2:
		b.table.set(p, oneHolder(old[1-at], head))
		b.lists.drop(id)
	default:
		b.lists.set(id, &holderList{p.of, slices.Concat(old[:at], old[at+1:]), head})
	}
}
