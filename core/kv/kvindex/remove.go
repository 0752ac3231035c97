package kvindex

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// remove takes a Removed event.
func (ix *Index) remove(now machine.Time, p *pod, e *kv.Event) {
	if e.Group != kv.NoGroup && !kv.FullAttention(p.Groups[e.Group]) {
		ix.stats.OtherAttention++
		return
	}
	bit := ^uint16(0)
	if !e.ByName || e.Medium != kv.AnyMedium {
		place := ix.placeOf(e.Medium, e.Group)
		if place < 0 {
			ix.stats.TooManyMedia++
			return
		}
		bit = 1 << place
	}
	var gone uint32
	for i, h := range e.Hashes {
		if i%warmRun == 0 {
			ix.warmRemove(e.Hashes[i:])
		}
		keys := ix.keysOf(h)
		last := keys[len(keys)-1]
		odd := atPlace{uint64(h), bit}
		_, counted := p.odd[odd]
		if !e.ByName {
			n := ix.count(p, bit, h, last)
			if n > 1 {
				ix.stats.Suppressed++
			} else {
				ix.stats.Forwarded++
			}
			if n == 0 {
				ix.stats.UnknownRemoved++
				if ix.nowhere(keys) {
					ix.forget(h)
				}
				continue
			}
			if n > 1 {
				p.odd[odd] = n - 1
				continue
			}
		}
		delete(p.odd, odd)
		for _, k := range keys {
			if len(keys) > 1 && p.stillShared(k, bit) {
				continue
			}
			if ix.letGo(p, bit, k) {
				gone++
			}
		}
		switch {
		case !e.ByName && ix.nowhere(keys):
			ix.forget(h)
		case counted:
			ix.retireUnused(h, last)
		}
	}
	if gone > 0 {
		p.Evicted += uint64(gone)
		p.rate.add(now, gone)
	}
}

// nowhere reports whether no pod holds any of the keys.
func (ix *Index) nowhere(keys []kv.Key) bool {
	for _, k := range keys {
		if ix.blocks.table.get(nameOf(uint64(k))) != 0 {
			return false
		}
	}
	return true
}

// forget drops an engine hash. Blocks that come after it then have an unknown parent.
func (ix *Index) forget(h kv.EngineHash) {
	if alias, ok := ix.aliases.find(nameOf(uint64(h))); ok {
		ix.aliases.set(alias, 0)
	}
	delete(ix.wide, h)
}

// letGo removes a pod's block from the given places. It reports whether the pod now holds the block nowhere.
func (ix *Index) letGo(p *pod, bits uint16, key kv.Key) bool {
	slot, places := ix.at(p, key)
	if places&bits == 0 {
		return false
	}
	id, rec := ix.pair(slot, p.Number)
	if left := rec.places &^ bits; left != 0 {
		rec.places = left
		ix.blocks.put(slot, p.Number, left, ix.blocks.head(slot))
		return false
	}
	ix.dropRecord(id, rec)
	return true
}

// dropRecord ends one pair of block and pod.
func (ix *Index) dropRecord(id uint32, rec *record) {
	p := ix.byNumber[rec.pod]
	slot, _ := ix.blocks.table.find(nameOf(uint64(rec.key)))
	head := ix.blocks.head(slot)
	if head == id {
		head = rec.sibling
	} else {
		before := ix.recs.at(head)
		for before.sibling != id {
			before = ix.recs.at(before.sibling)
		}
		before.sibling = rec.sibling
	}
	ix.blocks.put(slot, rec.pod, 0, head)
	if rec.podPrev != 0 {
		ix.recs.at(rec.podPrev).podNext = rec.podNext
	} else {
		p.first = rec.podNext
	}
	if rec.podNext != 0 {
		ix.recs.at(rec.podNext).podPrev = rec.podPrev
	}
	p.blocks--
	ix.recs.unage(rec)
	key, engine, places := rec.key, rec.engine, rec.places
	ix.recs.drop(id)
	if slot.word == 0 {
		delete(ix.names, key)
	}
	for bits := places; bits != 0 && len(p.odd)+len(p.shared) > 0; bits &= bits - 1 {
		delete(p.odd, atPlace{uint64(engine), bits & -bits})
		delete(p.shared, atPlace{uint64(key), bits & -bits})
	}
	ix.retireUnused(engine, key)
}

// retireUnused retires an engine hash whose last key is no longer held under
// that name.
func (ix *Index) retireUnused(h kv.EngineHash, key kv.Key) {
	if k, ok := ix.keyOf(h); !ok || uint64(k) != nameOf(uint64(key)) {
		return
	}
	if slot, ok := ix.blocks.table.find(nameOf(uint64(key))); ok && slot.word != 0 && ix.named(slot, h) {
		return
	}
	ix.retire(h)
}

// named reports whether any pod holds the block under this engine hash.
func (ix *Index) named(slot tableRef, h kv.EngineHash) bool {
	for id := ix.blocks.head(slot); id != 0; id = ix.recs.at(id).sibling {
		rec := ix.recs.at(id)
		if rec.engine == h {
			return true
		}
		for hold := range ix.byNumber[rec.pod].odd {
			if hold.of == uint64(h) {
				return true
			}
		}
	}
	return false
}

// retire appends an engine hash without blocks to the remembered ones, and forgets the hash that was remembered
// longest, unless that is in use again.
func (ix *Index) retire(h kv.EngineHash) {
	if len(ix.orphans) < ix.cfg.Orphans {
		ix.orphans = append(ix.orphans, h)
		return
	}
	old := ix.orphans[ix.orphan]
	ix.orphans[ix.orphan] = h
	ix.orphan = (ix.orphan + 1) % len(ix.orphans)
	alias, ok := ix.aliases.find(nameOf(uint64(old)))
	if !ok || alias.word == 0 {
		return
	}
	if slot, ok := ix.blocks.table.find(alias.word); ok && slot.word != 0 && ix.named(slot, old) {
		return
	}
	ix.aliases.set(alias, 0)
	delete(ix.wide, old)
}

// bound keeps the number of different blocks within MaxBlocks.
func (ix *Index) bound() {
	for ix.cfg.MaxBlocks > 0 && ix.blocks.table.live > ix.cfg.MaxBlocks {
		id := ix.recs.oldest
		ix.dropRecord(id, ix.recs.at(id))
		ix.stats.Displaced++
	}
}
