package engine

import (
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
)

// finishRun processes the end of the run: aborted requests end, every other one gets a token, and the engine is between
// two steps.
func (e *Engine) finishRun(fx *Effects) {
	x := &e.run
	e.play(x.steps - x.done)
	at := x.end
	e.stats.Busy += at - x.schedule.Start
	e.load.Prompts += x.prompts
	last := x.schedule.from(x.steps)
	e.boundary, e.frac = at, last.Frac
	e.now = max(e.now, at)
	x.active = false
	used := e.used()

	e.settleStarved()
	e.announceFilled()
	e.pool.log.flush(at, fx) // while the owners of the blocks still exist
	e.settleAborts(at, fx)
	e.report(fx)
	e.settlePrefills(at, fx)
	e.settleDecodes(at, math.MaxUint64, fx)
	for _, t := range e.resuming {
		if r := &e.reqs[t.slot]; r.generation == t.generation && r.phase == phasePaused {
			e.stats.Paused--
			e.startDecode(t.slot)
		}
	}
	e.resuming = e.resuming[:0]
	e.pool.log.flush(at, fx)
	e.reportSteps(at, fx)
	e.observeStep(at, used)
	e.pending = e.batch.decoding > 0 || len(e.batch.filling) > 0 || e.queue.len() > 0
	e.carryOn()
}

// settleStarved corrects the clocks of requests that got no token in this step.
func (e *Engine) settleStarved() {
	for _, s := range e.starved {
		r := &e.reqs[s]
		e.batch.bucket[e.bucketOf(r)]--
		r.kvOffset--
		r.madeOffset++
		e.batch.kv--
		e.batch.bucket[e.bucketOf(r)]++
		e.pushFinish(s)
	}
}

// announceFilled reports the generated blocks that this step filled.
func (e *Engine) announceFilled() {
	if e.pool.log == nil || e.needAt(0) == 0 {
		return
	}
	for s := e.batch.first; s != none; s = e.reqs[s].next {
		if r := &e.reqs[s]; r.phase == phaseDecode && e.crossing(r) {
			e.pool.announce(&r.holding, int32(r.kvOffset+e.batch.clock)/e.pool.blockSize, r.id)
		}
	}
}

// settleAborts ends the requests that an abort reached during the step. The engine drops their token of this step; its
// KV was computed all the same.
func (e *Engine) settleAborts(at machine.Time, fx *Effects) {
	for _, t := range e.aborting {
		r := &e.reqs[t.slot]
		if r.generation != t.generation || !r.abort {
			continue
		}
		if r.phase == phaseDecode && !r.starved {
			r.madeOffset++
			e.stats.GenerationTokens--
		}
		e.abandon(at, t.slot, fx)
	}
	e.aborting = e.aborting[:0]
	for _, s := range e.starved {
		e.reqs[s].starved = false
	}
}

// settlePrefills advances the requests that computed a part of their prompt.
func (e *Engine) settlePrefills(at machine.Time, fx *Effects) {
	for _, s := range e.fills {
		r := &e.reqs[s]
		if r.phase != phasePrefill {
			continue // aborted
		}
		r.computed += r.take
		r.take = 0
		if r.computed < r.prompt+r.made {
			continue
		}
		e.batch.filling = removeOrdered(e.batch.filling, s)
		e.firstToken(at, s, fx)
	}
}

// settleDecodes ends the decoding requests that made their last token and were admitted before the given admission
// number.
func (e *Engine) settleDecodes(at machine.Time, admission uint64, fx *Effects) {
	for {
		due, slot := e.nextFinish()
		if due > e.batch.clock || e.reqs[slot].admission > admission {
			return
		}
		e.batch.finish.Pop()
		e.complete(at, slot, fx)
	}
}

// firstToken gives a request with a computed prompt its next token, which is its first unless it was preempted before.
func (e *Engine) firstToken(at machine.Time, s int32, fx *Effects) {
	r := &e.reqs[s]
	r.made++
	e.stats.GenerationTokens++
	e.gap(at, r)
	switch {
	case !r.first:
		r.first = true
		e.stats.PromptTokens += uint64(r.prompt)
		fx.add(at, FirstToken, r.id)
	case r.every:
		f := fx.add(at, Tokens, r.id)
		f.First, f.Count, f.Schedule = r.made-1, 1, e.run.schedule.from(e.run.steps-1)
	}
	r.seen = r.made
	switch {
	case r.made == r.total:
		e.settleDecodes(at, r.admission, fx) // blocks are freed in the order of admission
		r.phase = phasePaused                // no longer filling
		e.stats.Paused++
		e.complete(at, s, fx)
	case r.hold:
		r.phase = phasePaused
		e.stats.Paused++
		e.isLate(s, at)
		fx.add(at, Paused, r.id)
	default:
		e.startDecode(s)
	}
}

// complete ends a request that made all its tokens.
func (e *Engine) complete(at machine.Time, s int32, fx *Effects) {
	r := &e.reqs[s]
	e.leave(s)
	e.pad()
	e.pool.commit(&r.holding, r.computed/e.pool.blockSize, r.id)
	if !r.holdKV {
		e.pool.leave(&r.holding)
	}
	e.finish(at, s, r.natural(), fx)
}

// abandon ends an aborted request, in whatever phase.
func (e *Engine) abandon(at machine.Time, s int32, fx *Effects) {
	r := &e.reqs[s]
	if !e.run.active {
		e.pool.log.flush(at, fx)
	}
	switch r.phase {
	case phaseWaiting:
		e.unready(r)
		e.unwait(s)
	case phasePulling:
		e.stats.Pulling--
	case phaseParked:
		e.stats.Paused--
	case phaseDecode:
		e.leave(s)
		e.pad()
		e.pool.commit(&r.holding, r.computed/e.pool.blockSize, r.id)
	default:
		e.leave(s)
		e.pad()
	}
	e.pool.drop(&r.holding)
	if r.remote.Tokens > 0 {
		e.releaseRemote(at, r, fx)
	}
	e.stats.Aborted++
	fx.add(at, Aborted, r.id).Count = r.made
	e.forget(s)
	e.drained(at, fx)
}

// pad keeps the place of a finished request of a static batch occupied until
// the whole batch is done.
func (e *Engine) pad() {
	if e.cfg.Batching == BatchingStatic {
		e.padding++
		if e.batch.size == 0 {
			e.padding = 0
		}
	}
}
