package stats

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
)

// itlBuckets is the number of buckets in vLLM's histogram of inter-token latency.
const itlBuckets = 20

// stepTimes counts the engine's steps by their duration. If the engine reports only the ends of a request, the request
// gets a token at the end of each step between its first and its last token. Its intervals are therefore the steps that
// ended in between: the exact intervals, at the cost of one count per step and not per token.
type stepTimes struct {
	counts [itlBuckets]uint32 // since the start; wraps around
	begun  []*Sequence        // sequences that had their first token in this delivery
	ended  []endedSequence
}

type endedSequence struct {
	q         *Sequence
	at        machine.Time
	intervals int
}

// add counts the steps of a run.
func (t *stepTimes) add(f *engine.Effect) {
	count := func(d machine.Time, n uint32) {
		i, _ := slices.BinarySearch(itlBounds, d.Seconds())
		t.counts[i] += n
	}
	if f.Schedule.Grow == 0 {
		count((f.Schedule.End(int(f.Count))-f.Schedule.Start)/machine.Time(f.Count), uint32(f.Count))
		return
	}
	last := f.Schedule.Start
	for k := 1; k <= int(f.Count); k++ {
		at := f.Schedule.End(k)
		count(at-last, 1)
		last = at
	}
}

// addFirst notes that a request's first token came with the step whose end is counted next. The method end notes the
// same of its last token.
func (t *stepTimes) addFirst(q *Sequence) { t.begun = append(t.begun, q) }

func (t *stepTimes) end(q *Sequence, at machine.Time, intervals int) {
	t.ended = append(t.ended, endedSequence{q, at, intervals})
}

// settle runs after steps were counted, and at the end of a delivery.
func (s *Stats) settle() {
	t := &s.steps
	for i, q := range t.begun {
		q.before = t.counts
		t.begun[i] = nil
	}
	t.begun = t.begun[:0]
	for i, e := range t.ended {
		s.intervals(e)
		t.ended[i] = endedSequence{}
	}
	t.ended = t.ended[:0]
}

// intervals adds a request's inter-token times to the histogram. If they are not the engine's steps (it was preempted
// in between, its last token was dropped, or there are no common steps), their mean counts.
func (s *Stats) intervals(e endedSequence) {
	took := max(0, (e.at - e.q.firstAt).Seconds())
	steps := 0
	for i, n := range s.steps.counts {
		steps += int(n - e.q.before[i])
	}
	if steps != e.intervals {
		s.itl.observeN(took/float64(e.intervals), uint64(e.intervals))
		return
	}
	for i, n := range s.steps.counts {
		s.itl.counts[i] += uint64(n - e.q.before[i])
	}
	s.itl.n += uint64(steps)
	s.itl.sum += took
}
