package engine

import "github.com/windtunnel/windtunnel/core/machine"

// run is the accelerator's current work: one step, or many that differ only in the length of the context that they
// read. The ends of many steps form an arithmetic series. As long as the driver does not look, many steps are one
// event. A message cuts the run at the end of the running step. The engine decides there what follows, exactly as if it
// had taken every step by itself.
type run struct {
	active   bool
	schedule Schedule
	steps    int // length
	done     int // steps that ended and were counted
	begun    int // steps that began: their blocks are allocated
	reported int // steps reported to EveryToken requests
	end      machine.Time
	decoding int          // requests that take a token in each step
	prefill  int          // prompt tokens
	prompts  machine.Time // time that they take, in a single step
}

// startRun starts a run of the composed step. begun is the number of steps whose blocks are allocated already.
func (e *Engine) startRun(decoding int, preempted bool, begun int) {
	b, st := &e.batch, &e.step
	*st = Step{Index: e.stats.Steps, DecodeSeqs: decoding + e.padding}
	st.DecodeContext = b.kv + int64(decoding)
	for _, s := range e.starved {
		st.DecodeContext -= e.reqs[s].kvOffset + b.clock
	}
	prefill := 0
	for _, s := range e.fills {
		r := &e.reqs[s]
		n, c := int64(r.take), int64(r.computed)
		prefill += int(n)
		if (r.fetched || r.again) && n == 1 { // the same work as an output token
			st.DecodeSeqs++
			st.DecodeContext += c + 1
			continue
		}
		st.PrefillSeqs++
		st.PrefillTokens += n
		st.PrefillContext += c
		st.PrefillPairs += n*c + n*(n+1)/2
		if r.computed+r.take == r.prompt+r.made {
			st.PrefillFinished++
		}
	}
	x := run{active: true, steps: 1, begun: begun, decoding: decoding, prefill: prefill}
	x.schedule = Schedule{Start: e.boundary, Frac: e.frac}
	line, closed := Line{}, false
	if !e.cfg.SingleSteps && !preempted && len(e.fills) == 0 && len(e.starved) == 0 && e.loading == 0 {
		line, closed = e.cfg.Timer.DecodeLine(st.DecodeSeqs, st.DecodeContext)
	}
	if closed {
		x.schedule.Base = bounded(e.paced(line.Base))
		x.schedule.Grow = e.paced(max(line.Slope, 0) * Fixed(decoding))
		x.steps = e.length(&x, line.Until-st.DecodeContext)
	} else {
		x.schedule.Base = bounded(e.paced(e.cfg.Timer.StepTime(st)) + e.loading)
		if st.PrefillSeqs > 0 {
			x.prompts = max(x.schedule.Base-e.tokensAlone(st), 0).Time()
		}
	}
	x.end = x.schedule.End(x.steps)
	e.run, e.loras.owed = x, 0
}

// tokensAlone returns the duration of a step without its prompts.
func (e *Engine) tokensAlone(s *Step) Fixed {
	if s.DecodeSeqs == 0 {
		return 0
	}
	alone := Step{Index: s.Index, DecodeSeqs: s.DecodeSeqs, DecodeContext: s.DecodeContext}
	return e.paced(e.cfg.Timer.StepTime(&alone))
}

// paced returns a step's duration at the engine's pace.
func (e *Engine) paced(f Fixed) Fixed {
	if e.pace == 0 {
		return f
	}
	return f/100*e.pace + f%100*e.pace/100
}

const (
	shortest = Fixed(1) << FixedShift                      // a step: 1 ns
	longest  = Fixed(24*3600*machine.Second) << FixedShift // a step: a day
	sumLimit = Fixed(1) << 61                              // a run
)

func bounded(f Fixed) Fixed { return min(max(f, shortest), longest) }

// length returns the number of steps that the run may have. The run ends when a request makes its last token, when
// blocks run out, when the line bends (knot: context from here), or when the engine has a cached block to report.
func (e *Engine) length(x *run, knot int64) int {
	due, _ := e.nextFinish()
	n := min(due-e.batch.clock, maxTokens)
	if knot < n*int64(x.decoding) {
		n = min(n, (knot+int64(x.decoding)-1)/int64(x.decoding))
	}
	n = e.affordable(n, e.pool.free+e.needAt(0)*x.begun)
	if log := e.pool.log; log != nil {
		if len(log.list) > 0 {
			n = 1
		}
		for i := range min(n, int64(e.cfg.BlockSize)) {
			if e.needAt(i) > 0 || e.needAt(i+1) > 0 {
				n = i + 1
				break
			}
		}
	}
	n = max(n, 1)
	for n > 1 && float64(n)*(float64(x.schedule.Base)+float64(x.schedule.Grow)*float64(n)) > float64(sumLimit) {
		n /= 2
	}
	return int(n)
}

// ended returns the number of steps of the run that ended by now, without the last.
func (x *run) ended(now machine.Time) int {
	low, high := x.done, x.steps-1
	for low < high {
		if m := (low + high + 1) / 2; x.schedule.End(m) <= now {
			low = m
		} else {
			high = m - 1
		}
	}
	return low
}

// catchUp counts the steps that ended by now, except the last of the run, and begins the one that is running.
func (e *Engine) catchUp(now machine.Time) {
	x := &e.run
	if !x.active || x.begun == x.steps {
		return
	}
	if n := x.ended(now) - x.done; n > 0 {
		e.play(n)
	}
	if x.begun == x.done && x.schedule.End(x.done) < now {
		e.pool.take(e.needAt(0))
		x.begun++
	}
}

// cut ends the run if it is exactly between two steps: a message at that very time takes part in the next step.
func (e *Engine) cut(fx *Effects) {
	x := &e.run
	if !x.active || x.begun > x.done {
		return
	}
	if x.done > 0 {
		x.steps, x.end = x.done, x.schedule.End(x.done)
		e.finishRun(fx)
	}
	if x.active { // carried on, or never begun
		x.active, e.pending = false, true
	}
}

// carryOn starts the next run right when one ends, if there is nothing to decide because every request decodes. It
// allocates no blocks yet, so that a message at this very time can still undo it (cut). It saves a wake-up.
func (e *Engine) carryOn() {
	b := &e.batch
	if e.cfg.SingleSteps || e.sending > 0 || e.loras.owed > 0 || b.decoding == 0 || len(b.filling) > 0 ||
		e.queue.len() > 0 ||
		b.decoding > e.cfg.MaxNumBatchedTokens || e.needAt(0) > e.pool.free {
		return
	}
	e.fills, e.starved = e.fills[:0], e.starved[:0]
	e.pending, e.blocked, e.loading = false, false, 0
	e.startRun(b.decoding, false, 0)
}

// play counts n more steps of the run.
func (e *Engine) play(n int) {
	x := &e.run
	e.countGaps(n)
	if first := x.begun - x.done; first < n {
		if blocks := e.need(int64(n)) - e.need(int64(first)); blocks > 0 {
			e.pool.take(blocks)
		}
		x.begun = x.done + n
	}
	e.batch.clock += int64(n)
	e.batch.kv += int64(n) * int64(e.batch.decoding)
	e.stats.Steps += uint64(n)
	e.stats.GenerationTokens += uint64(n) * uint64(x.decoding)
	x.done += n
}

// report adds the tokens of the steps counted since the last report, for requests that want every token.
func (e *Engine) report(fx *Effects) {
	x := &e.run
	if x.reported == x.done {
		return
	}
	part := x.schedule.from(x.reported)
	at := x.schedule.End(x.done)
	x.reported = x.done
	for _, s := range e.batch.watched {
		r := &e.reqs[s]
		made := int32(e.batch.clock - r.madeOffset)
		if n := made - r.seen; n > 0 {
			f := fx.add(at, Tokens, r.id)
			f.First, f.Count, f.Schedule = r.seen, n, part
			r.seen = made
		}
	}
}

// reportSteps adds the counted steps of the run, at the end of the last one or when the run is cut.
func (e *Engine) reportSteps(at machine.Time, fx *Effects) {
	if x := &e.run; e.cfg.ReportSteps && x.done > 0 {
		f := fx.add(at, Stepped, 0)
		f.Count, f.First, f.Batch, f.Schedule = int32(x.done), int32(x.prefill), int32(x.decoding), x.schedule
		f.hashFirst = int32(len(fx.steps))
		fx.steps = append(fx.steps, e.step)
	}
}

// disturb makes the engine decide again at the next boundary between steps: the end of the running step or, without
// one, now.
func (e *Engine) disturb() {
	x := &e.run
	switch {
	case x.active:
		if x.steps > x.done+1 {
			x.steps = x.done + 1
			x.end = x.schedule.End(x.steps)
		}
	case !e.pending:
		e.pending, e.boundary, e.frac = true, e.now, 0
	}
}

// from returns the schedule without its first k steps.
func (s *Schedule) from(k int) Schedule {
	sum := s.Frac + s.sum(k)
	whole := sum.Time()
	return Schedule{
		Start: s.Start + whole,
		Frac:  sum - ToFixed(whole),
		Base:  s.Base + s.Grow*Fixed(k),
		Grow:  s.Grow,
	}
}
