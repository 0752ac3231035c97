package kvindex

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Message is an input of an Index: *Events, Asked, Speculate, DropBlocks or DropPod.
type Message interface{ message() }

// Events are events of one publisher, in its order. None are a sign of life, as
// an empty batch is. The index keeps nothing of it, so that it may be used
// again.
type Events struct {
	// From is the publisher, as its topic says; an event's own pod and model,
	// where it has them, go first.
	From kv.Topic
	List []kv.Event
}

// Asked notes that a prompt was sent to a pod which holds the first Found of
// its keys. The blocks become young and popular, and the rates of the pod and
// of the whole follow. An empty pod means that no pod held anything.
type Asked struct {
	Pod   string
	Keys  []kv.Key
	Found int
}

// Speculate counts keys as held by a pod for TTL. A request with them was just sent there, and the pod will store its
// blocks before an event reports them.
type Speculate struct {
	Pod  string
	Keys []kv.Key
	TTL  machine.Time
}

// DropBlocks forgets what a pod holds but not the pod: its events were lost and
// cannot be had again.
type DropBlocks struct{ Pod string }

// DropPod forgets a pod that is gone, with all its blocks.
type DropPod struct{ Pod string }

func (*Events) message()    {}
func (Asked) message()      {}
func (Speculate) message()  {}
func (DropBlocks) message() {}
func (DropPod) message()    {}

// EffectKind is the type of an Effect of the Index.
type EffectKind uint8

// What an Index does by itself.
const (
	BlocksExpired EffectKind = iota + 1 // the TTL took blocks away
	PodStale                            // a pod was silent for StaleAfter
	PodHealthy                          // a stale pod sends events again
	PodForgotten                        // a pod was silent for ForgetAfter, or made room for another
)

// Effect is something that the index did because of the time.
type Effect struct {
	At     machine.Time // when it was due
	Kind   EffectKind
	Pod    string // not for BlocksExpired
	Blocks int    // pairs of block and pod that went
}

// Due returns At.
func (e Effect) Due() machine.Time { return e.At }

// Effects is the buffer that an Index fills.
type Effects = machine.Effects[Effect]

var _ machine.Machine[Message, *Effects] = (*Index)(nil)

// speculation holds blocks that a pod does not hold yet but will, since a
// request was just sent there (speculativeIndexing of llm-d-router).
type speculation struct {
	due   machine.Queue[expectation]
	until map[expectation]machine.Time
}

type expectation struct {
	pod *pod
	key kv.Key
}

// Next returns when the next timer is due, if any.
func (ix *Index) Next() (machine.Time, bool) {
	at := min(ix.quiet, ix.nextCleanup())
	if due, ok := ix.spec.due.Next(); ok {
		at = min(at, due)
	}
	return at, at != machine.Never
}

// Advance applies what is due. At equal times, expectations end first, then the TTL drops blocks, then silent pods
// become stale or are forgotten.
func (ix *Index) Advance(now machine.Time, fx *Effects) {
	now = max(now, ix.now)
	for at, ok := ix.Next(); ok && at <= now; at, ok = ix.Next() {
		old := ix.nextCleanup() == at // the next one, once it is now
		ix.now = at
		for due, ok := ix.spec.due.Next(); ok && due == at; due, ok = ix.spec.due.Next() {
			ix.unexpect()
		}
		if old && ix.recs.live > 0 {
			ix.expire(fx)
		}
		if ix.quiet <= at {
			ix.silence(at, fx)
		}
	}
	ix.now = now
}

// unexpect ends the oldest expectation, unless it was renewed.
func (ix *Index) unexpect() {
	at, x := ix.spec.due.Pop()
	if ix.spec.until[x] != at {
		return
	}
	delete(ix.spec.until, x)
	if bit := ix.placeOf("", speculativeGroup); bit >= 0 && ix.pods[x.pod.Name] == x.pod {
		ix.stats.Unexpected++
		ix.letGo(x.pod, 1<<bit, x.key)
	}
}

// nextCleanup returns when the TTL may next drop a block. It is a multiple of CleanupInterval; it skips those at which
// no block can be too old.
func (ix *Index) nextCleanup() machine.Time {
	switch {
	case ix.cfg.TTL <= 0 || ix.recs.live == 0:
		return machine.Never
	case ix.cleanup > ix.now:
		return ix.cleanup
	}
	return ix.cleanupAfter(ix.now)
}

// cleanupAfter returns the first cleanup after a time.
func (ix *Index) cleanupAfter(t machine.Time) machine.Time {
	if t > machine.Never-ix.cfg.CleanupInterval {
		return machine.Never
	}
	return (t/ix.cfg.CleanupInterval + 1) * ix.cfg.CleanupInterval
}

// expire drops what the TTL allows at a cleanup, which is now.
func (ix *Index) expire(fx *Effects) {
	ix.cleanup = ix.now
	n := 0
	for ix.recs.oldest != 0 {
		rec := ix.recs.at(ix.recs.oldest)
		if goes := rec.touched.Add(ix.cfg.TTL); goes > ix.now {
			ix.cleanup = ix.cleanupAfter(goes - 1)
			break
		}
		ix.dropRecord(ix.recs.oldest, rec)
		n++
	}
	if n > 0 {
		ix.stats.Expired += uint64(n)
		fx.Add(Effect{At: ix.now, Kind: BlocksExpired, Blocks: n})
	}
}

// silentAt returns when a pod's silence has its next consequence.
func (ix *Index) silentAt(p *pod) machine.Time {
	at := machine.Never
	if ix.cfg.StaleAfter > 0 && !p.Stale {
		at = p.LastMessage.Add(ix.cfg.StaleAfter)
	}
	if ix.cfg.ForgetAfter > 0 {
		at = min(at, p.LastMessage.Add(ix.cfg.ForgetAfter))
	}
	return at
}

// silence makes silent pods stale or forgets them, and finds when to look next.
func (ix *Index) silence(at machine.Time, fx *Effects) {
	next := machine.Never
	for _, p := range ix.byNumber {
		if p == nil {
			continue
		}
		if ix.silentAt(p) <= at {
			if ix.cfg.ForgetAfter > 0 && p.LastMessage.Add(ix.cfg.ForgetAfter) <= at {
				fx.Add(Effect{At: at, Kind: PodForgotten, Pod: p.Name, Blocks: p.blocks})
				ix.dropPod(p)
				continue
			}
			p.Stale = true
			fx.Add(Effect{At: at, Kind: PodStale, Pod: p.Name})
		}
		next = min(next, ix.silentAt(p))
	}
	ix.quiet = next
}

func (ix *Index) speculate(m *Speculate, fx *Effects) {
	p := ix.pods[m.Pod]
	if p == nil {
		p = ix.addPod(m.Pod, fx)
		p.LastMessage = ix.now
		ix.quiet = min(ix.quiet, ix.silentAt(p))
	}
	place := ix.placeOf("", speculativeGroup)
	if place < 0 {
		return
	}
	ix.stats.Admitted += uint64(len(m.Keys))
	until := ix.now.Add(max(1, m.TTL))
	for _, k := range m.Keys {
		ix.hold(ix.now, p, 1<<place, k, 0)
		ix.await(until, p, k)
	}
	ix.bound()
}

// await sets the time at which an expected block is dropped.
func (ix *Index) await(at machine.Time, p *pod, key kv.Key) {
	if ix.spec.until == nil {
		ix.spec.until = map[expectation]machine.Time{}
	}
	x := expectation{p, key}
	ix.spec.until[x] = at
	ix.spec.due.Push(at, machine.ClassTimer, x)
}
