package engine

import "math"

// The batch is the requests that have a place (MaxNumSeqs): those that compute
// their prompt, those that decode, and those that pause. They are a list in
// order of admission, linked through their slots; the decoding ones share a
// clock: every step that all of them take moves it by one, and a member's own
// counts are that clock plus a constant. A thousand steps of a hundred members
// are then one addition.

const none int32 = -1

// batch is what the engine keeps of it.
type batch struct {
	first, last int32 // by admission
	size        int
	admissions  uint64

	clock    int64   // steps that the decoding members took
	decoding int     // members that decode
	kv       int64   // KV tokens that these hold
	bucket   []int32 // decoding members by the clock, modulo block size, at which they need a new block
	finish   finishHeap

	watched []int32 // decoding members with EveryToken
	filling []int32 // members that compute their prompt, by admission
}

// enter gives a request a place at the end of the batch.
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

// leave takes a request out of the batch, whatever it was doing there; its
// blocks stay with it.
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

// startDecode makes a member of the batch decode. Its KV so far is r.computed
// tokens.
func (e *Engine) startDecode(s int32) {
	b, r := &e.batch, &e.reqs[s]
	r.phase = phaseDecode
	r.kvOffset = int64(r.computed) - b.clock
	r.madeOffset = b.clock - int64(r.made)
	b.decoding++
	b.kv += int64(r.computed)
	b.bucket[e.bucketOf(r)]++
	e.pushFinish(s)
	if r.every {
		r.watch = int32(len(b.watched))
		b.watched = append(b.watched, s)
	}
}

// stopDecode ends that, and settles the member's counts.
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

// bucketOf is the clock, modulo block size, at which a decoding request needs a
// new block.
func (e *Engine) bucketOf(r *request) int {
	size := int64(e.cfg.BlockSize)
	m := -r.kvOffset % size
	if m < 0 {
		m += size
	}
	return int(m)
}

// needAt is how many blocks the decoding members need for the step that the
// clock will count after ahead more.
func (e *Engine) needAt(ahead int64) int {
	return int(e.batch.bucket[(e.batch.clock+ahead)%int64(e.cfg.BlockSize)])
}

// need is how many blocks they need for the next n steps.
func (e *Engine) need(n int64) int {
	size := int64(e.cfg.BlockSize)
	blocks := int(n/size) * e.batch.decoding
	for i := n / size * size; i < n; i++ {
		blocks += e.needAt(i)
	}
	return blocks
}

// affordable is for how many of the next steps, at most n, free blocks suffice.
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

// finishing is when a decoding request makes its last token, by the clock.
type finishing struct {
	at         int64
	admission  uint64
	slot       int32
	generation uint32
}

func (a *finishing) before(b *finishing) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.admission < b.admission
}

// finishHeap orders them. Entries of requests that left earlier stay until they
// come to the top.
type finishHeap []finishing

func (h *finishHeap) push(f finishing) {
	*h = append(*h, f)
	q := *h
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !q[i].before(&q[parent]) {
			break
		}
		q[i], q[parent] = q[parent], q[i]
		i = parent
	}
}

func (h *finishHeap) pop() {
	q := *h
	last := len(q) - 1
	q[0] = q[last]
	q = q[:last]
	*h = q
	i := 0
	for {
		first := 4*i + 1
		if first >= last {
			return
		}
		best := first
		for c := first + 1; c < first+4 && c < last; c++ {
			if q[c].before(&q[best]) {
				best = c
			}
		}
		if !q[best].before(&q[i]) {
			return
		}
		q[i], q[best] = q[best], q[i]
		i = best
	}
}

func (e *Engine) pushFinish(s int32) {
	h, r := &e.batch.finish, &e.reqs[s]
	if len(*h) > 4*e.batch.decoding+64 {
		old := *h
		*h = old[:0]
		for _, f := range old { // a heap is refilled behind the reader
			if e.stillDue(f) {
				h.push(f)
			}
		}
	}
	h.push(finishing{at: r.madeOffset + int64(r.total), admission: r.admission, slot: s, generation: r.generation})
}

func (e *Engine) stillDue(f finishing) bool {
	r := &e.reqs[f.slot]
	return r.generation == f.generation && r.phase == phaseDecode && r.madeOffset+int64(r.total) == f.at
}

// nextFinish is the earliest of them; at is far away if nobody decodes.
func (e *Engine) nextFinish() finishing {
	h := &e.batch.finish
	for len(*h) > 0 {
		if f := (*h)[0]; e.stillDue(f) {
			return f
		}
		h.pop()
	}
	return finishing{at: math.MaxInt64, slot: none}
}
