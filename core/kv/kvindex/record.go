package kvindex

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// record is one (block, pod) pair as the writer knows it: 64 bytes, one cache
// line. It stands in three lists: the pairs of its block, the pairs of its
// pod, and all pairs by age.
type record struct {
	key     kv.Key
	engine  kv.EngineHash // under which it was stored first
	stored  machine.Time
	touched machine.Time // last stored, updated or asked for
	hits    uint32       // requests sent to the pod that found the block there
	sibling uint32       // the next pair of the same block; 0 ends every list
	podPrev uint32
	podNext uint32
	older   uint32
	newer   uint32
	pod     uint16
	places  uint16
}

const recordChunk = 8192

// records hands out records by number, from 1. They never move, and there are
// no pointers in them for the garbage collector to follow.
type records struct {
	chunks []*[recordChunk]record
	free   uint32 // linked through sibling
	made   uint32
	live   int
	oldest uint32
	newest uint32
}

func (r *records) at(id uint32) *record { return &r.chunks[id/recordChunk][id%recordChunk] }

func (r *records) add() (uint32, *record) {
	r.live++
	if id := r.free; id != 0 {
		rec := r.at(id)
		r.free = rec.sibling
		*rec = record{}
		return id, rec
	}
	r.made++
	if int(r.made/recordChunk) == len(r.chunks) {
		r.chunks = append(r.chunks, new([recordChunk]record))
	}
	return r.made, r.at(r.made)
}

func (r *records) drop(id uint32) {
	r.live--
	*r.at(id) = record{sibling: r.free}
	r.free = id
}

// young puts a record at the young end of the age list; fresh ones are not in
// it yet.
func (r *records) young(id uint32, rec *record, now machine.Time, fresh bool) {
	rec.touched = now
	if !fresh {
		if r.newest == id {
			return
		}
		r.unage(rec)
	}
	rec.newer, rec.older = 0, r.newest
	if r.newest != 0 {
		r.at(r.newest).newer = id
	} else {
		r.oldest = id
	}
	r.newest = id
}

// unage takes a record out of the age list.
func (r *records) unage(rec *record) {
	if rec.older != 0 {
		r.at(rec.older).newer = rec.newer
	} else {
		r.oldest = rec.newer
	}
	if rec.newer != 0 {
		r.at(rec.newer).older = rec.older
	} else {
		r.newest = rec.older
	}
}
