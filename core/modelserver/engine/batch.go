package engine

import (
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
)

// The batch holds the requests that have a place (MaxNumSeqs): those that compute their prompt, those that decode, and
// those that pause. They are a list in order of admission, linked through their slots. The decoding ones share a clock:
// every step that all of them take advances it by one, and a member's own counts are that clock plus a constant. A
// thousand steps of a hundred members are then one addition.

const none int32 = -1

// batch holds the batch's list and the counts of its members.
type batch struct {
	first, last int32 // by admission
	size        int
	admissions  uint64

	clock    int64                // steps that the decoding members took
	decoding int                  // members of the batch that decode
	kv       int64                // KV tokens that the decoding members hold
	bucket   []int32              // decoding members by the clock, modulo block size, at which they need a new block
	finish   machine.Heap[ticket] // by when they make their last token, then by admission

	watched []int32 // decoding members with EveryToken
	filling []int32 // members that compute their prompt, by admission
}

// enter gives a request the last place in the batch.
func (e *Engine) enter(s int32) {
	b, r := &e.batch, &e.reqs[s]
	b.admissions++
	r.admission = b.admissions
	r.prev, r.next = b.last, none
	if b.last != none {
		e.reqs[b.last].next = s
	} else {
		b.first = s
	}
	b.last = s
	b.size++
	e.useAdapter(r)
}

// leave removes a request from the batch, in whatever phase. The request keeps its blocks.
func (e *Engine) leave(s int32) {
	b, r := &e.batch, &e.reqs[s]
	switch r.phase {
	case phaseDecode:
		e.stopDecode(s)
	case phasePrefill:
		b.filling = removeOrdered(b.filling, s)
	case phasePaused:
		e.stats.Paused--
	}
	if r.prev != none {
		e.reqs[r.prev].next = r.next
	} else {
		b.first = r.next
	}
	if r.next != none {
		e.reqs[r.next].prev = r.prev
	} else {
		b.last = r.prev
	}
	b.size--
	e.unuseAdapter(r)
}

func removeOrdered(list []int32, s int32) []int32 {
	for i, x := range list {
		if x == s {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// startDecode makes a member of the batch decode, with the KV of r.computed tokens.
func (e *Engine) startDecode(s int32) {
	b, r := &e.batch, &e.reqs[s]
	r.phase = phaseDecode
	r.kvOffset = int64(r.computed) - b.clock
	r.madeOffset = b.clock - int64(r.made)
	b.decoding++
	b.kv += int64(r.computed)
	b.bucket[e.bucketOf(r)]++
	e.pushFinish(s)
	if r.late > 0 {
		e.late = append(e.late, ticket{s, r.generation})
	}
	if r.every {
		r.watch = int32(len(b.watched))
		b.watched = append(b.watched, s)
	}
}

// stopDecode ends a member's decoding, and fixes its counts.
func (e *Engine) stopDecode(s int32) {
	b, r := &e.batch, &e.reqs[s]
	b.bucket[e.bucketOf(r)]--
	r.computed = int32(r.kvOffset + b.clock)
	r.made = int32(b.clock - r.madeOffset)
	r.blocks = e.pool.blocksFor(r.computed)
	b.decoding--
	b.kv -= int64(r.computed)
	if r.every {
		last := b.watched[len(b.watched)-1]
		b.watched[r.watch] = last
		e.reqs[last].watch = r.watch
		b.watched = b.watched[:len(b.watched)-1]
	}
}

// bucketOf returns the clock, modulo block size, at which a decoding request needs a new block.
func (e *Engine) bucketOf(r *request) int {
	size := int64(e.cfg.BlockSize)
	m := -r.kvOffset % size
	if m < 0 {
		m += size
	}
	return int(m)
}

// needAt returns the number of blocks that the decoding members need for the step after ahead more steps.
func (e *Engine) needAt(ahead int64) int {
	return int(e.batch.bucket[(e.batch.clock+ahead)%int64(e.cfg.BlockSize)])
}

// need returns the number of blocks that the decoding members need for the next n steps.
func (e *Engine) need(n int64) int {
	size := int64(e.cfg.BlockSize)
	blocks := int(n/size) * e.batch.decoding
	for i := n / size * size; i < n; i++ {
		blocks += e.needAt(i)
	}
	return blocks
}

// affordable returns the number of next steps, at most n, for which the free blocks suffice.
func (e *Engine) affordable(n int64, free int) int64 {
	size := int64(e.cfg.BlockSize)
	if d := e.batch.decoding; d > 0 && (n/size+1)*int64(d) > int64(free) {
		can := int64(free/d) * size
		for free -= free / d * d; can < n && e.needAt(can) <= free; can++ {
			free -= e.needAt(can)
		}
		return min(n, can)
	}
	return n
}

func (e *Engine) pushFinish(s int32) {
	h, r := &e.batch.finish, &e.reqs[s]
	if h.Len() > 4*e.batch.decoding+64 {
		h.Keep(e.stillDue)
	}
	h.Push(machine.Key{First: r.madeOffset + int64(r.total), Second: r.admission}, ticket{s, r.generation})
}

func (e *Engine) stillDue(k machine.Key, t *ticket) bool {
	r := &e.reqs[t.slot]
	return r.generation == t.generation && r.phase == phaseDecode && r.madeOffset+int64(r.total) == k.First
}

// nextFinish returns the clock at which the first decoding request makes its last token, and that request's slot. The
// clock is very large if no request decodes. Entries of requests that left earlier stay until they reach the top.
func (e *Engine) nextFinish() (at int64, slot int32) {
	for h := &e.batch.finish; h.Len() > 0; h.Pop() {
		if k, t := h.Peek(); e.stillDue(k, t) {
			return k.First, t.slot
		}
	}
	return math.MaxInt64, none
}
