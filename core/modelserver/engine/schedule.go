package engine

// compose decides what the next step computes, as vLLM's V1 scheduler does: first the running requests, in order of
// admission, then the waiting ones (admit.go), all out of one budget of tokens. When blocks run out, the engine
// preempts the last admitted request (or the least important), which will compute everything again. compose leaves a
// run of one or more steps in e.run, or nothing to do.
func (e *Engine) compose(fx *Effects) {
	e.pending = false
	for e.try(fx) {
	}
}

// try composes a step. It returns true if it only preempted, so that nothing is left to compute. The next try then
// follows at once.
func (e *Engine) try(fx *Effects) (again bool) {
	e.fills, e.starved = e.fills[:0], e.starved[:0]
	e.blocked, e.loading = false, e.loras.owed
	forming := e.batch.size == 0
	budget := e.cfg.MaxNumBatchedTokens
	preempted := false
	if e.fits() {
		e.pool.take(e.needAt(0))
		for _, s := range e.batch.filling {
			budget -= e.fill(s, e.portion(&e.reqs[s], budget))
		}
		budget -= e.batch.decoding
	} else {
		preempted = e.walk(&budget, fx)
	}
	for _, s := range e.fills {
		e.commitFill(s)
	}
	if !preempted && (forming || e.cfg.Batching != BatchingStatic) {
		e.admit(budget, fx)
		for e.blocked && e.batch.size == 0 && e.reclaim(fx) {
			e.blocked = false
			e.admit(budget, fx)
		}
	}
	decoding := e.batch.decoding - len(e.starved)
	if decoding > 0 || len(e.fills) > 0 {
		e.startRun(decoding, preempted, 1)
		return false
	}
	for _, s := range e.starved {
		e.reqs[s].starved = false
	}
	return preempted
}

// fits reports whether every running request gets all that it needs in this step, so that their order does not matter.
func (e *Engine) fits() bool {
	if e.cfg.SingleSteps {
		return false
	}
	tokens, blocks := e.batch.decoding, e.needAt(0)
	for _, s := range e.batch.filling {
		r := &e.reqs[s]
		n := e.portion(r, maxTokens)
		tokens += int(n)
		blocks += int(e.more(r, n))
	}
	return tokens <= e.cfg.MaxNumBatchedTokens && blocks <= e.pool.free
}

// portion returns the number of prompt tokens that a request may compute in one step.
func (e *Engine) portion(r *request, budget int) int32 {
	n := r.prompt + r.made - r.computed
	if t := int32(e.cfg.LongPrefillTokenThreshold); t > 0 {
		n = min(n, t)
	}
	return min(n, int32(budget))
}

// more returns the number of blocks that a request lacks to compute n more tokens.
func (e *Engine) more(r *request, n int32) int32 {
	return max(0, e.pool.blocksFor(r.computed+n)-r.blocks)
}

// fill schedules the next n tokens of a request's prompt, whose blocks exist.
func (e *Engine) fill(s, n int32) int {
	r := &e.reqs[s]
	e.pool.grow(&r.holding, e.more(r, n))
	r.take = n
	e.fills = append(e.fills, s)
	return int(n)
}

// commitFill makes the blocks that a request computes in this step visible to requests admitted after it, even in the
// same step.
func (e *Engine) commitFill(s int32) {
	r := &e.reqs[s]
	e.pool.commit(&r.holding, (r.computed+r.take)/e.pool.blockSize, r.id)
}

// walk schedules one running request after the other, and preempts when blocks are short. It is always correct; fits
// avoids it when nothing is scarce.
func (e *Engine) walk(budget *int, fx *Effects) (preempted bool) {
	e.order = e.order[:0]
	for s := e.batch.first; s != none; s = e.reqs[s].next {
		e.reqs[s].took = false
		e.order = append(e.order, s)
	}
	out := false // a request preempted itself: those after it get nothing
	for _, s := range e.order {
		r := &e.reqs[s]
		var tokens, blocks int32
		switch {
		case r.phase == phaseDecode:
			tokens = 1
			if e.crossing(r) {
				blocks = 1
			}
		case r.phase == phasePrefill:
			tokens = e.portion(r, *budget)
			blocks = e.more(r, tokens)
		default:
			continue // paused, or preempted just now
		}
		if out || *budget == 0 {
			e.starve(s)
			continue
		}
		phase := r.phase
		for int(blocks) > e.pool.free && r.phase == phase {
			v := e.victim()
			if v == s {
				// The request would preempt itself, start again and get no further. Take blocks from requests that do
				// not run instead.
				if e.reclaim(fx) {
					continue
				}
				if p := e.lastPaused(); p != none {
					v = p
				}
			}
			*budget += e.unschedule(v)
			e.preempt(v, fx)
			preempted = true
		}
		if r.phase != phase {
			out = true
			continue
		}
		r.took = true
		*budget -= int(tokens)
		if phase == phaseDecode {
			e.pool.take(int(blocks))
		} else {
			e.fill(s, tokens)
		}
	}
	return preempted
}

// crossing reports whether a decoding request needs a new block for its next token.
func (e *Engine) crossing(r *request) bool {
	return e.bucketOf(r) == int(e.batch.clock%int64(e.cfg.BlockSize))
}

// starve notes that a decoding request gets no token in this step.
func (e *Engine) starve(s int32) {
	if r := &e.reqs[s]; r.phase == phaseDecode {
		r.starved = true
		e.isLate(s, e.boundary)
		e.starved = append(e.starved, s)
	}
}

// victim returns the request to preempt: the last admitted or, under PolicyPriority, the least important of all that
// run.
func (e *Engine) victim() int32 {
	worst := e.batch.last
	if e.cfg.Policy == PolicyPriority {
		for s := e.reqs[worst].prev; s != none; s = e.reqs[s].prev {
			if e.before(&e.reqs[worst], &e.reqs[s]) {
				worst = s
			}
		}
	}
	return worst
}

func (e *Engine) lastPaused() int32 {
	s := e.batch.last
	for s != none && e.reqs[s].phase != phasePaused {
		s = e.reqs[s].prev
	}
	return s
}

// unschedule takes back the tokens that a request got in the step being composed, and returns their number.
func (e *Engine) unschedule(s int32) int {
	r := &e.reqs[s]
	if !r.took {
		return 0
	}
	r.took = false
	if r.phase == phaseDecode {
		if e.crossing(r) {
			e.pool.giveAnonymous(1)
		}
		return 1
	}
	e.fills = removeOrdered(e.fills, s)
	return int(r.take)
}

// preempt takes a request's place and blocks. The computed content stays in the cache until the engine needs the
// blocks.
func (e *Engine) preempt(s int32, fx *Effects) {
	r := &e.reqs[s]
	paused := r.phase == phasePaused
	if r.phase == phaseDecode {
		e.isLate(s, e.boundary)
	}
	e.leave(s)
	e.pool.commit(&r.holding, r.computed/e.pool.blockSize, r.id)
	e.pool.drop(&r.holding)
	r.computed, r.take, r.again, r.fetched = 0, 0, true, false
	e.stats.Preemptions++
	fx.add(e.boundary, Preempted, r.id).Count = r.prompt + r.made
	if paused {
		r.phase = phaseParked
		e.stats.Paused++
		return
	}
	e.wait(s)
}
