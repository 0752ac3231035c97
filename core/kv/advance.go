package kv

import "github.com/windtunnel/windtunnel/core/machine"

// EffectKind says what an Effect of the Index reports.
type EffectKind uint8

// What an Index does by itself.
const (
	BlocksExpired EffectKind = iota + 1 // the TTL took blocks away
	PodStale                            // a pod was silent for StaleAfter
	PodHealthy                          // a stale pod was heard of again
	PodForgotten                        // a pod was silent for ForgetAfter, or made room for another
)

// Effect is something that the index did because of the time.
type Effect struct {
	At     machine.Time // when it was due
	Kind   EffectKind
	Pod    string // not for BlocksExpired
	Blocks int    // pairs of block and pod that went
}

// speculation holds blocks that a pod does not hold yet but will, since a
// request was just sent there (speculativeIndexing of llm-d-router).
type speculation struct {
	due   machine.Queue[expectation]
	until map[expectation]machine.Time
}

type expectation struct {
	pod *pod
	key Key
}

// Next is when the index wants to be woken, if at all.
func (ix *Index) Next() (machine.Time, bool) {
	if len(ix.effects) > 0 {
		return ix.now, true
	}
	at := ix.quiet
	if ix.cfg.TTL > 0 && ix.recs.live > 0 {
		at = min(at, ix.cleanup)
	}
	if due, ok := ix.spec.due.Next(); ok {
		at = min(at, due)
	}
	return at, at != machine.Never
}

// Advance does what is due and hands out the effects since the last call.
func (ix *Index) Advance(now machine.Time, sink func(Effect)) {
	ix.advanceTo(now)
	for _, e := range ix.effects {
		sink(e)
	}
	ix.effects = ix.effects[:0]
}

func (ix *Index) advanceTo(now machine.Time) machine.Time {
	now = max(now, ix.now)
	ix.now = now
	for due, ok := ix.spec.due.Next(); ok && due <= now; due, ok = ix.spec.due.Next() {
		at, x := ix.spec.due.Pop()
		if ix.spec.until[x] == at {
			delete(ix.spec.until, x)
			if bit := ix.placeOf("", speculativeGroup); bit >= 0 && ix.pods[x.pod.name] == x.pod {
				ix.letGo(x.pod, 1<<bit, x.key)
			}
		}
	}
	if ix.cleanup <= now {
		late := (now - ix.cleanup) / ix.cfg.CleanupInterval * ix.cfg.CleanupInterval
		ix.expire(ix.cleanup + late)
		ix.cleanup += late + ix.cfg.CleanupInterval
	}
	for ix.quiet <= now {
		ix.silence(ix.quiet)
	}
	return now
}

// expire drops what the TTL allows at one cleanup.
func (ix *Index) expire(at machine.Time) {
	if ix.cfg.TTL <= 0 {
		return
	}
	n := 0
	for ix.recs.oldest != 0 {
		rec := ix.recs.at(ix.recs.oldest)
		if rec.touched.Add(ix.cfg.TTL) > at {
			break
		}
		ix.dropRecord(ix.recs.oldest, rec)
		n++
	}
	if n > 0 {
		ix.stats.Expired += uint64(n)
		ix.effects = append(ix.effects, Effect{At: at, Kind: BlocksExpired, Blocks: n})
	}
}

// silentAt is when a pod's silence has its next consequence.
func (ix *Index) silentAt(p *pod) machine.Time {
	at := machine.Never
	if ix.cfg.StaleAfter > 0 && !p.stale {
		at = p.heard.Add(ix.cfg.StaleAfter)
	}
	if ix.cfg.ForgetAfter > 0 {
		at = min(at, p.heard.Add(ix.cfg.ForgetAfter))
	}
	return at
}

// silence does what silence brings at one instant and finds the next.
func (ix *Index) silence(at machine.Time) {
	next := machine.Never
	for _, p := range ix.byNumber {
		if p == nil {
			continue
		}
		if ix.silentAt(p) <= at {
			if ix.cfg.ForgetAfter > 0 && p.heard.Add(ix.cfg.ForgetAfter) <= at {
				ix.effects = append(ix.effects, Effect{At: at, Kind: PodForgotten, Pod: p.name, Blocks: p.blocks})
				ix.dropPod(p)
				continue
			}
			p.stale = true
			ix.effects = append(ix.effects, Effect{At: at, Kind: PodStale, Pod: p.name})
		}
		next = min(next, ix.silentAt(p))
	}
	ix.quiet = next
}

// Speculate counts keys as held by a pod for ttl, because a request with them
// was just sent there and its blocks will be stored before any event says so.
func (ix *Index) Speculate(now machine.Time, podName string, keys []Key, ttl machine.Time) {
	now = ix.advanceTo(now)
	p := ix.pods[podName]
	if p == nil {
		p = ix.addPod(podName)
		p.heard = now
		ix.quiet = min(ix.quiet, ix.silentAt(p))
	}
	place := ix.placeOf("", speculativeGroup)
	if place < 0 {
		return
	}
	for _, k := range keys {
		ix.hold(now, p, 1<<place, k, 0)
		ix.await(now.Add(ttl), p, k)
	}
	ix.bound()
}

// await has a block that is only expected go at a time.
func (ix *Index) await(at machine.Time, p *pod, key Key) {
	if ix.spec.until == nil {
		ix.spec.until = map[expectation]machine.Time{}
	}
	x := expectation{p, key}
	ix.spec.until[x] = at
	ix.spec.due.Push(at, machine.ClassTimer, x)
}
