package kvindex

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// store takes a Stored or Updated event.
func (ix *Index) store(now machine.Time, p *pod, model string, e *kv.Event) {
	if !p.grouped(e) {
		ix.stats.OtherAttention++
		return
	}
	place := ix.placeOf(e.Medium, e.Group)
	if place < 0 {
		ix.stats.TooManyMedia++
		return
	}
	bit := uint16(1) << place
	if e.ByName {
		ix.storeNamed(now, p, bit, e)
		return
	}
	if e.NumTokens() == 0 {
		ix.storeAgain(now, p, bit, e)
		return
	}
	if e.LoRAName != "" {
		model = e.LoRAName
	}
	var parent kv.Key
	if e.Parent == 0 {
		parent = ix.cfg.Hasher.Root(model)
	} else {
		k, ok := ix.keyOf(e.Parent)
		if !ok {
			ix.stats.UnknownParent++
			return
		}
		parent = k
	}
	if len(e.Tokens) > 0 {
		ix.keys = ix.cfg.Hasher.AppendKeys(ix.keys[:0], parent, e.Tokens, ix.extraPerKey(e))
	} else {
		ix.keys = append(ix.keys[:0], e.Keys...)
	}
	ix.made = ix.keys
	if len(ix.keys) == 0 {
		ix.stats.TooShort++
		return
	}
	ix.stats.Admitted += uint64(len(ix.keys))
	if len(e.Hashes) == 0 { // known by their tokens alone: nothing can remove them one by one
		for _, k := range ix.keys {
			ix.hold(now, p, bit, k, 0)
		}
		ix.bound()
		return
	}
	if len(ix.keys) == len(e.Hashes) {
		for i, h := range e.Hashes {
			if i%warmRun == 0 {
				ix.warmStore(e.Hashes[i:], ix.keys[i:])
			}
			ix.storeBlock(now, p, bit, h, ix.keys[i:i+1], e)
		}
		return
	}
	// With more hashes than keys, each hash has one key. With fewer, each has several, by their numbers and not by
	// their tokens, as in llm-d-router.
	n, m := len(ix.keys), len(e.Hashes)
	for i, h := range e.Hashes {
		from, to := i*n/m, i*n/m+1
		if n > m {
			from, to = (i*n+m-1)/m, ((i+1)*n+m-1)/m
		}
		ix.storeBlock(now, p, bit, h, ix.keys[from:to], e)
	}
}

// Made returns the keys of the last event's tokens; none if it had no tokens, or an unknown parent. They are valid
// until the next event.
func (ix *Index) Made() []kv.Key { return ix.made }

// storeAgain takes an event without tokens: blocks that went to another
// medium, whose engine hashes are known from before.
func (ix *Index) storeAgain(now machine.Time, p *pod, bit uint16, e *kv.Event) {
	for _, h := range e.Hashes {
		if _, ok := ix.keyOf(h); !ok {
			ix.stats.Unresolved++
			continue
		}
		keys := ix.keysOf(h)
		ix.stats.Admitted += uint64(len(keys))
		ix.storeBlock(now, p, bit, h, keys, e)
	}
}

// extraPerKey gives the extra keys of engine blocks to the blocks of the index:
// where these are smaller each has its engine block's, where they are larger
// all that are in it.
func (ix *Index) extraPerKey(e *kv.Event) [][]string {
	n := len(e.Tokens) / ix.cfg.Hasher.Tokens()
	if m := len(e.ExtraKeys); e.ExtraKeys != nil && n > 0 && m > 0 && m != n {
		ix.extra = append(ix.extra[:0], make([][]string, n)...)
		for i := range max(n, m) {
			at := i * n / max(n, m)
			ix.extra[at] = append(ix.extra[at], e.ExtraKeys[i*m/max(n, m)]...)
		}
		return ix.extra
	}
	return e.ExtraKeys
}

// keyOf returns the key of an engine's block.
func (ix *Index) keyOf(h kv.EngineHash) (kv.Key, bool) {
	k := ix.aliases.get(nameOf(uint64(h)))
	return kv.Key(k), k != 0
}

// storeBlock notes that a pod holds one engine block, which stands for keys.
func (ix *Index) storeBlock(now machine.Time, p *pod, bit uint16, h kv.EngineHash, keys []kv.Key, e *kv.Event) {
	last := keys[len(keys)-1]
	alias := ix.aliases.slot(nameOf(uint64(h)))
	before, was := 0, alias.word
	if was != 0 { // copies are counted by their hash, whatever it named
		before = ix.count(p, bit, h, kv.Key(was))
	}
	if was != nameOf(uint64(last)) {
		if was != 0 {
			ix.stats.Renamed++
			delete(ix.wide, h)
		}
		ix.aliases.set(alias, nameOf(uint64(last)))
		if len(keys) > 1 {
			ix.wide[h] = slices.Clone(keys)
		}
	}
	var first bool
	for _, k := range keys {
		if len(keys) > 1 && before == 0 {
			if _, places := ix.at(p, k); places&bit != 0 {
				x := atPlace{uint64(k), bit}
				addTo(&p.shared, x, p.shared[x]+1)
			}
		}
		first = ix.hold(now, p, bit, k, h)
	}
	switch {
	case before > 0 && e.Name != "": // document 003's events are not counted
	case before > 0 || !first:
		addTo(&p.odd, atPlace{uint64(h), bit}, before+1)
	}
	if e.Kind == kv.Updated { // a change of medium is a move
		for _, k := range keys {
			ix.letGo(p, ^bit, k)
		}
	}
	ix.bound()
}

// at returns a key's slot and the places at which a pod holds the key, 0 if it does not.
func (ix *Index) at(p *pod, key kv.Key) (slot tableRef, places uint16) {
	slot, ok := ix.blocks.table.find(nameOf(uint64(key)))
	if ok {
		places = ix.blocks.placesOf(slot, p.Number)
	}
	return slot, places
}

// count returns how often a pod stored an engine block at a place without removing it. key is the block's last key.
func (ix *Index) count(p *pod, bit uint16, h kv.EngineHash, key kv.Key) int {
	if n, ok := p.odd[atPlace{uint64(h), bit}]; ok {
		return n
	}
	slot, places := ix.at(p, key)
	if places&bit == 0 {
		return 0
	}
	if _, rec := ix.pair(slot, p.Number); rec.engine == h {
		return 1
	}
	return 0
}

// pair returns the record of a block and a pod that holds it.
func (ix *Index) pair(slot tableRef, number uint16) (uint32, *record) {
	id := ix.blocks.head(slot)
	for rec := ix.recs.at(id); ; rec = ix.recs.at(id) {
		if rec.pod == number {
			return id, rec
		}
		id = rec.sibling
	}
}

// hold makes a pod a holder of one key. It reports whether the place is new and the record has this engine hash, so
// that the record alone counts it.
func (ix *Index) hold(now machine.Time, p *pod, bit uint16, key kv.Key, h kv.EngineHash) bool {
	slot := ix.blocks.table.slot(nameOf(uint64(key)))
	if places := ix.blocks.placesOf(slot, p.Number); places != 0 {
		id, rec := ix.pair(slot, p.Number)
		rec.stored = now
		ix.recs.young(id, rec, now, false)
		if places&bit != 0 {
			return false
		}
		rec.places |= bit
		ix.blocks.put(slot, p.Number, rec.places, ix.blocks.head(slot))
		if rec.engine == 0 { // until now only expected
			rec.engine = h
		}
		return rec.engine == h
	}
	id, rec := ix.recs.add()
	rec.key, rec.engine, rec.stored, rec.pod, rec.places = key, h, now, p.Number, bit
	rec.sibling = ix.blocks.head(slot)
	rec.podNext = p.first
	if p.first != 0 {
		ix.recs.at(p.first).podPrev = id
	}
	p.first = id
	p.blocks++
	p.HighWater = max(p.HighWater, p.blocks)
	ix.recs.young(id, rec, now, true)
	ix.blocks.put(slot, p.Number, bit, id)
	return true
}

// storeNamed takes an event of document 003 without tokens.
func (ix *Index) storeNamed(now machine.Time, p *pod, bit uint16, e *kv.Event) {
	for _, h := range e.Hashes {
		keys := ix.keysOf(h)
		for _, k := range keys {
			ix.hold(now, p, bit, k, h)
			if e.Kind == kv.Updated {
				ix.letGo(p, ^bit, k)
			}
			if e.Name != "" && len(keys) == 1 && kv.EngineHash(k).Name() != e.Name {
				ix.names[k] = e.Name
			}
		}
	}
	ix.bound()
}

// keysOf returns the keys that an engine's hash stands for; a hash that came
// without tokens is its own key.
func (ix *Index) keysOf(h kv.EngineHash) []kv.Key {
	if keys, ok := ix.wide[h]; ok {
		return keys
	}
	k, ok := ix.keyOf(h)
	if !ok {
		k = kv.Key(nameOf(uint64(h)))
	}
	ix.keys = append(ix.keys[:0], k)
	return ix.keys
}
