package kvindex

import "github.com/windtunnel/windtunnel/core/kv"

// warmRun is the number of blocks for which memory is fetched ahead.
const warmRun = 32

func (ix *Index) warmStore(hashes []kv.EngineHash, keys []kv.Key) {
	var sum uint64
	for i := range min(warmRun, len(hashes)) {
		sum += ix.aliases.warm(nameOf(uint64(hashes[i]))) + ix.blocks.table.warm(nameOf(uint64(keys[i])))
	}
	ix.warmed = sum
}

// warmRemove goes step by step from the hashes to the records and their
// neighbours by age, since each step's places are known only after the last.
func (ix *Index) warmRemove(hashes []kv.EngineHash) {
	var sum uint64
	var ids [warmRun]uint64
	hashes = hashes[:min(warmRun, len(hashes))]
	for _, h := range hashes {
		sum += ix.aliases.warm(nameOf(uint64(h)))
	}
	if n := len(ix.orphans); n == ix.cfg.Orphans { // those that will be forgotten for these
		for i := range hashes {
			sum += ix.aliases.warm(nameOf(uint64(ix.orphans[(ix.orphan+i)%n])))
		}
	}
	for i, h := range hashes {
		ids[i] = ix.aliases.get(nameOf(uint64(h)))
		sum += ix.blocks.table.warm(ids[i])
	}
	for i := range hashes {
		w := ix.blocks.table.get(nameOf(ids[i]))
		if ids[i] = 0; w != 0 && w&wordInList == 0 {
			ids[i] = uint64(wordRecord(w))
			sum += uint64(ix.recs.at(uint32(ids[i])).older)
		}
	}
	for _, id := range ids[:len(hashes)] {
		if id == 0 {
			continue
		}
		rec := ix.recs.at(uint32(id))
		for _, other := range [...]uint32{rec.older, rec.newer, rec.podPrev, rec.podNext} {
			if other != 0 {
				sum += uint64(ix.recs.at(other).pod)
			}
		}
	}
	ix.warmed = sum
}
