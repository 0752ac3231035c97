package engine

// admit moves waiting requests into the batch, in order, while there are places, budget and blocks for the whole
// prompt, whatever part of it this step computes (vLLM: scheduler_reserve_full_isl). The first request without enough
// blocks stops the queue, so that no request overtakes it, except those that have blocks reserved already. admit skips
// a request that only waits for an adapter slot, and one whose long prompt exceeds MaxLongPartialPrefills.
func (e *Engine) admit(budget int, fx *Effects) {
	partial, long := 0, 0
	for _, s := range e.fills {
		e.countPartial(&e.reqs[s], &partial, &long)
	}
	for i := 0; i < e.queue.len() && budget > 0 && e.batch.size < e.places; {
		if e.blocked && e.ready == 0 {
			return
		}
		s := e.queue.at(i)
		r := &e.reqs[s]
		if !e.adapterFits(r) || e.blocked && !r.ready {
			i++
			continue
		}
		found, computed := hit{blocks: r.blocks}, r.computed
		if !r.ready {
			found = e.find(r)
			computed = found.blocks * e.pool.blockSize
			if r.remote.Tokens > 0 {
				pulled, enough := e.pull(s, found, fx)
				if !enough {
					e.blocked = true
					i++
					continue
				}
				if pulled {
					continue
				}
			}
		}
		whole := r.prompt + r.made - computed
		tokens := whole
		if t := int32(e.cfg.LongPrefillTokenThreshold); t > 0 {
			tokens = min(tokens, t)
		}
		if e.cfg.DisableChunkedPrefill && int(tokens) > budget {
			return
		}
		tokens = min(tokens, int32(budget))
		if tokens < whole {
			if n := e.cfg.MaxNumPartialPrefills; n > 0 && partial >= n {
				return
			}
			if n := e.cfg.MaxLongPartialPrefills; n > 0 && e.isLong(r) && long >= n {
				i++
				continue
			}
		}
		if int(max(0, e.pool.blocksFor(r.prompt+r.made)-found.blocks)+found.taken()) > e.pool.free {
			e.blocked = true
			i++
			continue
		}
		e.unwait(s)
		if !r.ready {
			e.reuse(r, found)
		}
		r.computed = computed
		e.enter(s)
		r.phase = phasePrefill
		e.batch.filling = append(e.batch.filling, s)
		budget -= e.fill(s, tokens)
		e.commitFill(s)
		e.countPartial(r, &partial, &long)
		e.unready(r)
		fx.add(e.boundary, PrefillStarted, r.id).Count = computed
	}
}

// reclaim takes the blocks of the last waiting request that has some, because otherwise no request could proceed. That
// request will compute its prompt here. vLLM would wait forever.
func (e *Engine) reclaim(fx *Effects) bool {
	for i := e.queue.len() - 1; i >= 0 && e.ready > 0; i-- {
		r := &e.reqs[e.queue.at(i)]
		if !r.ready {
			continue
		}
		e.unready(r)
		r.again, r.fetched, r.computed = true, false, 0
		e.pool.drop(&r.holding)
		e.stats.Preemptions++
		fx.add(e.boundary, Preempted, r.id).Count = r.prompt
		return true
	}
	return false
}

func (e *Engine) unready(r *request) {
	if r.ready {
		r.ready = false
		e.ready--
	}
}

// find looks up a request's content in the prefix cache. The engine always computes the last token, because its output
// is the next token.
func (e *Engine) find(r *request) hit {
	if r.uncached || len(r.hashes) == 0 && !r.again {
		return hit{}
	}
	return e.pool.lookup(&r.chain, (r.prompt+r.made-1)/e.pool.blockSize)
}

// reuse gives a request the blocks found in the cache, and counts them.
func (e *Engine) reuse(r *request, found hit) {
	e.pool.share(&r.holding, found, r.id)
	e.loading += e.cpuBlock * Fixed(found.cold)
	if found.cold > 0 {
		e.pool.offload.loads.count(found.cold)
	}
	if !r.again && e.pool.caching {
		size := uint64(e.pool.blockSize)
		e.stats.PrefixCacheQueries += uint64(r.prompt)
		e.stats.PrefixCacheHits += uint64(found.blocks-found.cold) * size
		e.stats.CPUCacheHits += uint64(found.cold) * size
	}
}

// isLong reports whether a prompt counts as long for MaxLongPartialPrefills.
func (e *Engine) isLong(r *request) bool {
	t := int32(e.cfg.LongPrefillTokenThreshold)
	return t > 0 && r.prompt+r.made > t
}

// countPartial counts a request whose prompt is still incomplete after the step being composed.
func (e *Engine) countPartial(r *request, partial, long *int) {
	if r.computed+r.take < r.prompt+r.made {
		*partial++
		if e.isLong(r) {
			*long++
		}
	}
}
