package engine

import "github.com/windtunnel/windtunnel/core/machine"

// timeline is BatchingIndependent: each request has its own next event, and requests do not affect each other. Events
// of requests that are gone stay queued until their time, and are then skipped.
type timeline struct {
	queue machine.Queue[ticket]
	// quiet holds first tokens that need no wake-up. Their requests are in queue as well, with their ends.
	quiet machine.Queue[ticket]
}

// due returns the time of the next event, or Never. quiet reports that the event is the first of the quiet ones.
func (t *timeline) due(reqs []request) (at machine.Time, quiet bool) {
	at = t.next(reqs)
	for {
		first, ok := t.quiet.Next()
		if !ok || first > at {
			return at, false
		}
		k := *t.quiet.Peek()
		if r := &reqs[k.slot]; r.generation == k.generation && r.phase == phasePrefill && r.start == first {
			return first, true
		}
		t.quiet.Pop()
	}
}

// next returns the time of the next event that is not quiet, or Never.
func (t *timeline) next(reqs []request) machine.Time {
	for {
		at, ok := t.queue.Next()
		if !ok {
			return machine.Never
		}
		k := *t.queue.Peek()
		if r := &reqs[k.slot]; r.generation == k.generation && r.due == at {
			return at
		}
		t.queue.Pop()
	}
}

func (t *timeline) push(reqs []request, s int32, at machine.Time) {
	reqs[s].due = at
	t.queue.Push(at, machine.ClassStepEnd, ticket{s, reqs[s].generation})
}

func (e *Engine) submitTimeline(s int32, m *Submit, fx *Effects) {
	r := &e.reqs[s]
	prefill := m.PrefillTime
	if prefill == 0 {
		d := machine.NewDraw(e.cfg.Seed, "engine prefill", "time", uint64(r.id)^e.cfg.Index<<48)
		prefill = d.Between(e.cfg.Prefill.Low, e.cfg.Prefill.High)
	}
	r.tokenTime = m.TokenTime
	if r.tokenTime == 0 {
		d := machine.NewDraw(e.cfg.Seed, "engine token", "time", uint64(r.id)^e.cfg.Index<<48)
		r.tokenTime = d.Between(e.cfg.TokenTime.Low, e.cfg.TokenTime.High)
	}
	if r.remote.Tokens > 0 {
		r.phase = phasePulling
		e.stats.Pulling++
		r.prefillTime = prefill
		e.askKV(e.now, r, int32(min(r.remote.Tokens, int(r.prompt))), fx)
		return
	}
	e.startTimeline(s, prefill, 0, fx)
}

func (e *Engine) startTimeline(s int32, prefill machine.Time, cached int32, fx *Effects) {
	r := &e.reqs[s]
	r.phase = phasePrefill
	fx.add(e.now, PrefillStarted, r.id).Count = cached
	first := e.now.Add(prefill)
	if r.quiet && r.total > 1 {
		r.start, r.base = first, 1
		e.timeline.quiet.Push(first, machine.ClassStepEnd, ticket{s, r.generation})
		e.timeline.push(e.reqs, s, e.dueTimeline(r))
		return
	}
	e.timeline.push(e.reqs, s, first)
}

// playTimeline processes the earliest event of the timeline.
func (e *Engine) playTimeline(quiet bool, fx *Effects) {
	from := &e.timeline.queue
	if quiet {
		from = &e.timeline.quiet
	}
	at, k := from.Pop()
	s := k.slot
	r := &e.reqs[s]
	e.now = max(e.now, at)
	if r.phase == phasePrefill {
		r.first, r.made = true, 1
		e.stats.PromptTokens += uint64(r.prompt)
		e.stats.GenerationTokens++
		fx.add(at, FirstToken, r.id)
		switch {
		case r.made == r.total:
			e.finish(at, s, r.natural(), fx)
		case quiet:
			r.phase = phaseDecode // its end is queued already
		case r.hold:
			r.phase = phasePaused
			e.stats.Paused++
			e.isLate(s, at)
			fx.add(at, Paused, r.id)
		default:
			e.decodeTimeline(s, at)
		}
		return
	}
	e.countTimeline(s, at, fx)
	if r.made == r.total {
		e.finish(at, s, r.natural(), fx)
		return
	}
	e.timeline.push(e.reqs, s, e.dueTimeline(r))
}

func (e *Engine) decodeTimeline(s int32, at machine.Time) {
	r := &e.reqs[s]
	r.phase = phaseDecode
	r.start, r.base = at, r.made
	e.timeline.push(e.reqs, s, e.dueTimeline(r))
}

// dueTimeline returns the time of a decoding request's next effect: its next token, or its last.
func (e *Engine) dueTimeline(r *request) machine.Time {
	n := r.total - r.base
	if r.every {
		n = r.made + 1 - r.base
	}
	return r.start.Add(machine.Time(n) * r.tokenTime)
}

// countTimeline counts the tokens that a decoding request made up to at.
func (e *Engine) countTimeline(s int32, at machine.Time, fx *Effects) {
	r := &e.reqs[s]
	made := r.total
	if r.tokenTime > 0 {
		made = min(made, r.base+int32((at-r.start)/r.tokenTime))
	}
	n := made - r.made
	if n <= 0 {
		return
	}
	if e.cfg.Gaps != nil {
		from, steps := int(r.made-r.base), int(n)
		if from == 0 && r.late > 0 {
			e.gap(r.start.Add(r.tokenTime), r)
			from, steps = 1, steps-1
		}
		e.cfg.Gaps.Gaps(&Schedule{Start: r.start, Base: ToFixed(r.tokenTime)}, from, steps, 1)
	}
	if r.every {
		f := fx.add(at, Tokens, r.id)
		f.First, f.Count = r.made, n
		f.Schedule = Schedule{Start: r.start + machine.Time(r.made-r.base)*r.tokenTime, Base: ToFixed(r.tokenTime)}
	}
	r.made = made
	e.stats.GenerationTokens += uint64(n)
}

func (e *Engine) resumeTimeline(s int32) {
	r := &e.reqs[s]
	r.hold = false
	if r.phase == phasePaused {
		e.stats.Paused--
		e.decodeTimeline(s, e.now)
	}
}

// leaveTimeline removes a request from the timeline, in whatever phase.
func (e *Engine) leaveTimeline(s int32, fx *Effects) {
	r := &e.reqs[s]
	switch r.phase {
	case phasePulling:
		e.stats.Pulling--
		e.releaseRemote(e.now, r, fx)
		return
	case phasePaused:
		e.stats.Paused--
	case phaseDecode:
		e.countTimeline(s, e.now, fx)
	}
}

func (e *Engine) abortTimeline(s int32, fx *Effects) {
	e.leaveTimeline(s, fx)
	r := &e.reqs[s]
	e.stats.Aborted++
	fx.add(e.now, Aborted, r.id).Count = r.made
	e.forget(s)
	e.drained(e.now, fx)
}

// arrivedTimeline continues with the first token: the prompt's KV has arrived.
func (e *Engine) arrivedTimeline(s int32, fx *Effects) {
	r := &e.reqs[s]
	if r.phase != phasePulling {
		return
	}
	tokens := min(int32(r.remote.Tokens), r.prompt)
	e.leaveTimeline(s, fx)
	e.startTimeline(s, r.tokenTime, tokens, fx)
}

func (e *Engine) failedTimeline(s int32, fx *Effects) {
	r := &e.reqs[s]
	if r.phase != phasePulling {
		return
	}
	e.leaveTimeline(s, fx)
	if e.cfg.KVLoadFailure == KVLoadRecompute {
		e.startTimeline(s, r.prefillTime, 0, fx)
		return
	}
	e.finish(e.now, s, ReasonKVFailed, fx)
}
