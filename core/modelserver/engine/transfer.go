package engine

import "github.com/windtunnel/windtunnel/core/machine"

// To fetch KV from another engine, the engine first reserves blocks, then asks the driver to move the bytes, and uses
// only the blocks that arrived. Meanwhile the request has no place in the batch.

// pull starts the transfer of the next request. pulled is false if this engine already has everything that the other
// one holds. enough is false if there are no blocks to receive it.
func (e *Engine) pull(s int32, found hit, fx *Effects) (pulled, enough bool) {
	r := &e.reqs[s]
	here := found.blocks * e.pool.blockSize
	there := min(int32(min(r.remote.Tokens, maxTokens)), r.prompt)
	if there <= here {
		e.releaseRemote(e.boundary, r, fx)
		return false, true
	}
	more := e.pool.blocksFor(there) - found.blocks
	if int(more+found.taken()) > e.pool.free {
		return false, false
	}
	e.unwait(s)
	e.reuse(r, found)
	e.pool.grow(&r.holding, more)
	r.computed, r.take = here, there-here
	r.phase = phasePulling
	e.stats.Pulling++
	e.askKV(e.boundary, r, r.take, fx)
	return true, true
}

// askKV asks the driver to fetch tokens of a request's prompt.
func (e *Engine) askKV(at machine.Time, r *request, tokens int32, fx *Effects) {
	f := fx.add(at, KVPull, r.id)
	f.Handle, f.From, f.Count = r.remote.Handle, r.remote.From, tokens
	f.Bytes = int64(tokens) * e.cfg.KVBytesPerToken
}

// releaseRemote reports to the other engine, through the driver, that its KV is no longer needed.
func (e *Engine) releaseRemote(at machine.Time, r *request, fx *Effects) {
	f := fx.add(at, KVRelease, r.id)
	f.Handle, f.From = r.remote.Handle, r.remote.From
	r.remote = RemoteKV{}
}

// arrived returns a request whose KV has arrived to its place in the queue.
func (e *Engine) arrived(s int32, fx *Effects) {
	r := &e.reqs[s]
	if r.phase != phasePulling {
		return
	}
	e.releaseRemote(e.now, r, fx)
	r.computed += r.take
	r.take, r.fetched = 0, true
	e.pool.commit(&r.holding, r.computed/e.pool.blockSize, r.id)
	r.computed = min(r.computed, r.prompt-1)
	e.requeue(s)
}

// failed applies Config.KVLoadFailure to a request whose KV does not arrive.
func (e *Engine) failed(s int32, fx *Effects) {
	r := &e.reqs[s]
	if r.phase != phasePulling {
		return
	}
	e.releaseRemote(e.now, r, fx)
	r.take = 0
	if e.cfg.KVLoadFailure == KVLoadRecompute {
		e.requeue(s)
		return
	}
	e.stats.Pulling--
	e.pool.drop(&r.holding)
	e.finish(e.now, s, ReasonKVFailed, fx)
	e.freed()
}

func (e *Engine) requeue(s int32) {
	e.stats.Pulling--
	e.reqs[s].ready = true
	e.ready++
	e.wait(s)
	e.disturb()
}

// freed notes that blocks became free outside a step, which matters only to waiting requests.
func (e *Engine) freed() {
	if e.queue.len() > 0 {
		e.disturb()
	}
}

// send counts the transfers that block the engine. Steps that waited begin when the last transfer ends.
func (e *Engine) send(by int) {
	if e.independent() {
		return
	}
	before := e.sending
	e.sending = max(0, e.sending+by)
	switch {
	case before == 0 && e.sending > 0 && e.run.active:
		e.disturb()
	case before > 0 && e.sending == 0 && e.pending && e.boundary < e.now:
		for s := e.batch.first; s != none; s = e.reqs[s].next {
			if e.reqs[s].phase == phaseDecode {
				e.isLate(s, e.boundary)
			}
		}
		e.boundary, e.frac = e.now, 0
	}
}
