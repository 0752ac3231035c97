package engine

import (
	"math"
	"math/bits"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Gaps receives the times between a request's tokens.
type Gaps interface {
	// Gaps reports steps of a schedule that ended, counted from 0. In each of them the given number of requests got a
	// token, for which they waited as long as the step took. A negative count takes back as many.
	Gaps(s *Schedule, from, steps, requests int)
}

// Load is an engine's load from its beginning to a time.
type Load struct {
	// For is the length of that period, and Busy the part that the engine spent in steps (not counted under
	// BatchingIndependent). Prompts is the part of Busy that prompts took: all of a step that computes only prompts,
	// and the time by which prompts lengthen a step that also makes tokens.
	For, Busy, Prompts machine.Time
	// Running and Waiting count requests. Blocks counts the blocks of the KV cache in use, out of Total (0 under
	// BatchingIndependent).
	Running, Waiting, Blocks Level
	Total                    int
	Preemptions              uint64
	// Slots is the most requests that may run at once.
	Slots int
	// Stats are the counters at that time. Timer is the engine's step timer, nil under BatchingIndependent.
	Stats Stats
	Timer StepTimer
}

// Level is a quantity that rises and falls. Peak is its highest value that lasts for some time.
type Level struct {
	Peak   int
	hi, lo uint64 // integral over time: half of units times nanoseconds
	now    int
}

// Mean returns the average level over a period, exact to a millionth.
func (l *Level) Mean(d machine.Time) float64 {
	if d <= 0 {
		return 0
	}
	sum := float64(l.hi) * (1 << 63)
	return math.Round(float64(float64(sum+float64(l.lo)/2)/float64(d))*1e6) / 1e6
}

// hold keeps the level for a period, and then changes it.
func (l *Level) hold(d machine.Time, to int) {
	if l.sum(2*l.now, d); d > 0 {
		l.Peak = max(l.Peak, l.now)
	}
	l.now = to
}

// slide changes the level linearly over a period.
func (l *Level) slide(d machine.Time, to int) {
	if l.sum(l.now+to, d); d > 0 {
		l.Peak = max(l.Peak, l.now, to)
	}
	l.now = to
}

func (l *Level) sum(twice int, d machine.Time) {
	hi, lo := bits.Mul64(uint64(twice), uint64(d))
	var carry uint64
	l.lo, carry = bits.Add64(l.lo, lo, 0)
	l.hi += hi + carry
}

// observe adds the engine's load at a time. The engine calls it at every change of the requests in flight: between two
// such times, the blocks in use grow about linearly. used is the number of blocks in use until now, some of them free
// again.
func (e *Engine) observe(at machine.Time, used int) {
	l := &e.load
	d := max(at-l.For, 0)
	l.For += d
	running := e.batch.size
	if e.pool == nil {
		running = e.ids.Len() - e.stats.Pulling
	} else {
		l.Blocks.slide(d, used)
		l.Blocks.now = e.pool.used()
	}
	l.Running.hold(d, running)
	l.Waiting.hold(d, e.ids.Len()-running)
	e.seen = e.batch.admissions
}

// observeStep is observe at the beginning or the end of a step, unless the requests are still the same and all decode.
func (e *Engine) observeStep(at machine.Time, used int) {
	l := &e.load
	if len(e.fills) > 0 || e.batch.size != l.Running.now || e.ids.Len() != l.Running.now+l.Waiting.now ||
		e.batch.admissions != e.seen {
		e.observe(at, used)
	}
}

// used returns the number of blocks in use now.
func (e *Engine) used() int {
	if e.pool == nil {
		return 0
	}
	return e.pool.used()
}

// Load returns the engine's load until now. Among later calls only messages count: a timer that finds nothing to do
// does not extend the period of the load.
func (e *Engine) Load(now machine.Time) Load {
	s := e.Stats()
	e.observe(now, e.used())
	l := e.load
	l.Busy, l.Preemptions, l.Slots, l.Stats, l.Timer = s.Busy, s.Preemptions, e.cfg.MaxNumSeqs, s, e.cfg.Timer
	if e.run.active {
		l.Prompts += min(e.run.prompts, e.now-e.run.schedule.Start)
	}
	if e.pool != nil {
		l.Total = e.pool.total
	}
	return l
}

// countGaps reports n more steps of the run, before they are counted.
func (e *Engine) countGaps(n int) {
	x := &e.run
	if e.cfg.Gaps == nil || x.decoding == 0 || n == 0 {
		return
	}
	if x.done == 0 && len(e.late) > 0 {
		e.countLate()
	}
	e.cfg.Gaps.Gaps(&x.schedule, x.done, n, x.decoding)
	if x.done+n == x.steps { // a request that an abort reached loses the token
		for _, t := range e.aborting {
			if r := &e.reqs[t.slot]; r.generation == t.generation && r.abort && r.phase == phaseDecode && !r.starved {
				e.cfg.Gaps.Gaps(&x.schedule, x.steps-1, 1, -1)
			}
		}
	}
}

// countLate corrects the first gap of requests whose last token is older than the beginning of the run.
func (e *Engine) countLate() {
	x := &e.run
	kept := e.late[:0]
	for _, t := range e.late {
		r := &e.reqs[t.slot]
		switch {
		case r.generation != t.generation || r.late == 0 || r.phase != phaseDecode:
		case r.starved:
			kept = append(kept, t)
		case r.abort && x.steps == 1:
			r.late = 0 // the request loses this token
		default:
			e.cfg.Gaps.Gaps(&x.schedule, 0, 1, -1)
			e.gap(x.schedule.End(1), r)
		}
	}
	e.late = kept
}

// gap reports a request's token that comes more than one step after the token before.
func (e *Engine) gap(at machine.Time, r *request) {
	if e.cfg.Gaps != nil && r.late > 0 {
		e.cfg.Gaps.Gaps(&Schedule{Start: r.late, Base: ToFixed(at - r.late)}, 0, 1, 1)
	}
	r.late = 0
}

// isLate notes that a request had its last token at a time, and misses the step that begins then.
func (e *Engine) isLate(s int32, at machine.Time) {
	if r := &e.reqs[s]; e.cfg.Gaps != nil && r.late == 0 {
		r.late = at
		if r.phase == phaseDecode {
			e.late = append(e.late, ticket{s, r.generation})
		}
	}
}
