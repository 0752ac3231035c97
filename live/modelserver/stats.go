package modelserver

import (
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
)

// stats are one server's counts and histograms. Only the loop writes them, in
// the order in which things happened, so none is ever lost or negative; a
// scrape is a copy taken in the loop.
type stats struct {
	version uint64       // changes with every change
	active  machine.Time // when it last did

	preemptions    uint64
	refused        uint64 // because too many waited
	success        [finishReasons]uint64
	cachedTokens   uint64
	queriedTokens  uint64
	externalTokens uint64 // prompt tokens asked of other servers
	externalHits   uint64 // of these, fetched

	ttft, itl, tpot                      histogram
	e2e, queue, inference, prefill       histogram
	decode                               histogram
	promptTokens, generationTokens       histogram
	maxGeneration, paramMaxTokens        histogram
	paramN, iterationTokens, kvComputed  histogram
	transferSeconds, transferBytes       histogram
	postSeconds, descriptors             histogram // of transfers: until the holder has answered; blocks
	failedTransfers, expiredHandles      uint64
	rates                                rates
	steps                                stepTimes
	hardware                             *latency.Hardware // nil where none is simulated
	kvStored, kvRemoved, kvClearedEvents uint64
}

// The values of the label finished_reason.
const (
	finishedStop = iota
	finishedLength
	finishedAbort
	finishedError
	finishedRepetition
	finishReasons
)

var finishedNames = [finishReasons]string{"stop", "length", "abort", "error", "repetition"}

func (s *stats) prefillStarted(q *seq, f *engine.Effect) {
	s.queriedTokens += uint64(q.Submit.PromptTokens)
	s.cachedTokens += uint64(f.Count)
}

func (s *stats) firstToken(q *seq, f *engine.Effect) {
	s.ttft.observe((f.At - q.arrived).Seconds()) // from arrival: waiting counts
	if !q.Every {
		s.steps.begin(q)
	}
	s.rates.add(f.At, uint64(1), uint64(q.Submit.PromptTokens-q.cached))
}

func (s *stats) tokens(q *seq, f *engine.Effect) {
	last := q.lastAt
	for k := 1; k <= int(f.Count); k++ {
		at := f.Schedule.End(k)
		s.itl.observe((at - last).Seconds())
		last = at
	}
	s.rates.add(f.At, uint64(f.Count), 0)
}

func (s *stats) stepped(fx *engine.Effects, f *engine.Effect) {
	s.steps.add(f)
	s.iterationTokens.observe(float64(f.Batch) + float64(f.First))
	for range f.Count - 1 {
		s.iterationTokens.observe(float64(f.Batch))
	}
	if s.hardware == nil {
		return
	}
	for k := range int(f.Count) {
		if f.At-f.Schedule.End(k+1) > rateSpan*machine.Second {
			continue // too long ago for what is kept
		}
		step := fx.Step(f, k)
		took := int64(f.Schedule.End(k+1) - f.Schedule.End(k))
		compute, bandwidth := s.hardware.Usage(&step, took)
		r := s.rates.at(f.Schedule.End(k + 1))
		r.computed += machine.Time(int64(compute) * took / 1000)
		r.moved += machine.Time(int64(bandwidth) * took / 1000)
	}
}

func (s *stats) finished(q *seq, f *engine.Effect) {
	reason := finishedError
	switch f.Reason {
	case engine.ReasonStop:
		reason = finishedStop
	case engine.ReasonLength:
		reason = finishedLength
	}
	if !q.Every && f.Count > 1 && q.firstAt > 0 {
		s.rates.add(f.At, uint64(f.Count-1), 0)
	}
	s.ended(q, f, reason)
}

func (s *stats) aborted(q *seq, f *engine.Effect) { s.ended(q, f, finishedAbort) }

func (s *stats) ended(q *seq, f *engine.Effect, reason int) {
	s.success[reason]++
	s.e2e.observe((f.At - q.arrived).Seconds())
	s.rates.finished(f.At, (f.At - q.arrived).Seconds(), reason)
	s.promptTokens.observe(float64(q.Submit.PromptTokens))
	s.generationTokens.observe(float64(f.Count))
	s.maxGeneration.observe(float64(f.Count))
	s.paramN.observe(float64(q.request.N))
	if q.request.MaxTokens > 0 {
		s.paramMaxTokens.observe(float64(q.request.MaxTokens))
	}
	if q.scheduled == 0 {
		s.queue.observe((f.At - q.arrived).Seconds())
		return
	}
	s.queue.observe((q.scheduled - q.arrived).Seconds())
	s.inference.observe((f.At - q.scheduled).Seconds())
	if q.firstAt == 0 {
		s.prefill.observe((f.At - q.scheduled).Seconds())
		return
	}
	if !q.Every && f.Count > 1 {
		s.steps.end(q, f.At, int(f.Count-1))
	}
	s.kvComputed.observe(float64(q.Submit.PromptTokens - q.cached))
	s.prefill.observe((q.firstAt - q.scheduled).Seconds())
	s.decode.observe((f.At - q.firstAt).Seconds())
	if f.Count > 1 {
		s.tpot.observe((f.At - q.firstAt).Seconds() / float64(f.Count-1))
	}
}
