package stats

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Stats holds one server's counts and histograms. It processes effects in the order of events, so no count is ever lost
// or negative.
type Stats struct {
	// Success counts requests by their finish reason.
	Success [finishReasons]uint64
	// QueriedTokens is the number of prompt tokens looked up in the prefix cache, CachedTokens the number found.
	QueriedTokens, CachedTokens uint64

	version        uint64       // changes whenever the counts do
	active         machine.Time // time of their last change
	undelivered    bool         // an effect was processed since Delivered
	preemptions    uint64
	blockTokens    int
	refused        uint64 // because the queue was full
	externalTokens uint64 // prompt tokens requested from other servers
	externalHits   uint64 // prompt tokens fetched from them

	durations
	sizes
	transfers
	blocks
	latest   latest // of e2e
	rates    rates
	steps    stepTimes
	hardware *hardware.Hardware // nil if none is simulated
	noUsage  bool               // no reader of the share of it that steps use
	onlyNow  bool               // counts no past events
}

// durations of requests and of their tokens.
type durations struct{ ttft, itl, tpot, e2e, queue, inference, prefill, decode histogram }

// sizes of requests and of steps, and the number of preemptions of each finished request.
type sizes struct {
	promptTokens, generationTokens, maxGeneration, paramMaxTokens, paramN, iterationTokens, kvComputed,
	preemptionsEach histogram
}

// transfers holds the counts of KV caches that came from other servers.
type transfers struct {
	transferSeconds, transferBytes  histogram
	postSeconds, descriptors        histogram // times until the holder's answer; blocks
	failedTransfers, expiredHandles uint64
}

// blocks holds the times of the sampled KV blocks.
type blocks struct {
	residency                            *residency // nil if none are sampled
	blockLifetime, blockIdle, blockReuse histogram
}

// New returns the Stats of a server with this engine.
func New(c *engine.Config) *Stats {
	s := new(Stats)
	s.init(c.MaxModelLen)
	s.blockTokens = c.BlockSize
	if timer, ok := c.Timer.(*latency.Timer); ok {
		s.hardware = timer.Hardware()
	}
	return s
}

// SkipUsage leaves out the share of the hardware that each step uses, because it costs time at every step. It is for a
// driver whose readers need none of UsageFamilies.
func (s *Stats) SkipUsage() { s.noUsage = true }

// OnlyNow leaves out all counts of past events, for a driver whose readers need only the families of WriteNow.
func (s *Stats) OnlyNow() { s.onlyNow = true }

// Hardware returns the hardware of the engine, nil if none is simulated.
func (s *Stats) Hardware() *hardware.Hardware { return s.hardware }

// Sequence is one completion in the engine: the unit that it schedules.
type Sequence struct {
	PromptTokens int
	// EveryToken states that the engine reports each token.
	EveryToken bool
	// N and MaxTokens are the request's parameters; N 0 is 1, MaxTokens 0 none.
	N, MaxTokens int
	// Adapter is the LoRA adapter's name, or empty.
	Adapter string
	// Blocks are the prompt's block hashes, needed if a sample of blocks is followed.
	Blocks []uint64
	// Arrived is the time at which the API server received the completion, and Queued that at which the engine did.
	Arrived, Queued machine.Time

	scheduled, firstAt, lastAt machine.Time
	begun, first               bool // scheduled and firstAt are known
	cached                     int
	preempted                  int
	fetched                    int // tokens fetched from another server
	// steps that ended by its first token, by duration, if the engine does not report every token
	before [itlBuckets]uint32
}

// Scheduled reports whether the engine has scheduled the completion.
func (q *Sequence) Scheduled() bool { return q.begun }

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

// Effect processes an effect of the engine. q is the effect's sequence; nil if it belongs to none.
func (s *Stats) Effect(fx *engine.Effects, f *engine.Effect, q *Sequence) {
	s.active, s.undelivered = f.At, true
	if s.onlyNow {
		if q != nil && f.Kind == engine.PrefillStarted {
			q.begun = true // its adapter runs
		}
		return
	}
	s.blockEffect(fx, f)
	switch f.Kind {
	case engine.Stepped:
		s.stepped(fx, f)
		s.settle()
	case engine.KVPull:
		s.externalTokens += uint64(f.Count)
	case engine.KVFreed:
		if f.Reason == engine.ReasonTimeout {
			s.expiredHandles++
		}
	}
	if q == nil {
		return
	}
	switch f.Kind {
	case engine.Rejected:
		if f.Code == engine.CodeFull {
			s.refused++
		}
	case engine.PrefillStarted:
		if s.residency != nil && s.blockTokens > 0 {
			s.residency.accessed(f.At, q.Blocks[:min(len(q.Blocks), int(f.Count)/s.blockTokens)])
		}
		if !q.begun { // a preempted request starts twice
			q.begun, q.scheduled, q.cached = true, f.At, int(f.Count)
			s.QueriedTokens += uint64(q.PromptTokens)
			s.CachedTokens += uint64(max(0, int(f.Count)-q.fetched))
		}
	case engine.FirstToken:
		q.first, q.firstAt, q.lastAt = true, f.At, f.At
		s.firstToken(q, f)
	case engine.Tokens:
		s.tokens(q, f)
		q.lastAt = f.At
	case engine.Preempted:
		s.preemptions++
		q.preempted++
	case engine.Finished:
		s.finished(q, f)
	case engine.Aborted:
		s.ended(q, f, finishedAbort)
	}
}

// Delivered follows the last effect of one call of the engine.
func (s *Stats) Delivered() {
	if s.undelivered {
		s.undelivered = false
		s.version++
		s.settle()
	}
}

// Computed notes whether the engine computed during a period.
func (s *Stats) Computed(from, to machine.Time, computing bool) {
	if computing && !s.onlyNow {
		s.rates.busySpan(from, to)
	}
}

// Fetched counts a KV cache that came from another server for q: its tokens, in blocks of blockTokens, its bytes, and
// the times until the holder had answered and until the cache arrived, in seconds.
func (s *Stats) Fetched(q *Sequence, tokens, blockTokens int, bytes int64, posted, took float64) {
	q.fetched += tokens
	s.externalHits += uint64(tokens)
	s.transferSeconds.observe(took)
	s.postSeconds.observe(posted)
	s.descriptors.observe(float64((tokens + blockTokens - 1) / blockTokens))
	s.transferBytes.observe(float64(bytes))
}

// FetchFailed counts KV caches that did not arrive.
func (s *Stats) FetchFailed(n int) { s.failedTransfers += uint64(n) }

func (s *Stats) firstToken(q *Sequence, f *engine.Effect) {
	s.ttft.observe((f.At - q.Arrived).Seconds()) // from arrival, with the time in the queue
	if !q.EveryToken {
		s.steps.addFirst(q)
	}
	s.rates.add(f.At, uint64(1), uint64(q.PromptTokens-q.cached))
}

func (s *Stats) tokens(q *Sequence, f *engine.Effect) {
	last := q.lastAt
	for k := 1; k <= int(f.Count); k++ {
		at := f.Schedule.End(k)
		s.itl.observe((at - last).Seconds())
		last = at
	}
	s.rates.add(f.At, uint64(f.Count), 0)
}

func (s *Stats) stepped(fx *engine.Effects, f *engine.Effect) {
	s.steps.add(f)
	s.iterationTokens.observe(float64(f.Batch) + float64(f.First))
	s.iterationTokens.observeN(float64(f.Batch), uint64(f.Count-1))
	if s.hardware == nil || s.noUsage {
		return
	}
	for k := range int(f.Count) {
		if f.At-f.Schedule.End(k+1) > rateSpan*machine.Second {
			continue // older than the seconds that are kept
		}
		step := fx.Step(f, k)
		took := int64(f.Schedule.End(k+1) - f.Schedule.End(k))
		compute, bandwidth := s.hardware.Usage(&step, took)
		r := s.rates.at(f.Schedule.End(k + 1))
		r.computed += machine.Time(int64(compute) * took / 1000)
		r.moved += machine.Time(int64(bandwidth) * took / 1000)
	}
}

func (s *Stats) finished(q *Sequence, f *engine.Effect) {
	reason := finishedError
	switch f.Reason {
	case engine.ReasonStop:
		reason = finishedStop
	case engine.ReasonLength:
		reason = finishedLength
	}
	if !q.EveryToken && f.Count > 1 && q.first {
		s.rates.add(f.At, uint64(f.Count-1), 0)
	}
	s.ended(q, f, reason)
}

func (s *Stats) ended(q *Sequence, f *engine.Effect, reason int) {
	s.Success[reason]++
	s.e2e.observe((f.At - q.Arrived).Seconds())
	s.latest.add((f.At - q.Arrived).Seconds())
	s.promptTokens.observe(float64(q.PromptTokens))
	s.generationTokens.observe(float64(f.Count))
	s.maxGeneration.observe(float64(f.Count))
	s.paramN.observe(float64(max(1, q.N)))
	s.preemptionsEach.observe(float64(q.preempted))
	if q.MaxTokens > 0 {
		s.paramMaxTokens.observe(float64(q.MaxTokens))
	}
	if !q.begun {
		s.queue.observe((f.At - q.Queued).Seconds())
		return
	}
	s.queue.observe((q.scheduled - q.Queued).Seconds())
	s.inference.observe((f.At - q.scheduled).Seconds())
	if !q.first {
		s.prefill.observe((f.At - q.scheduled).Seconds())
		return
	}
	if !q.EveryToken && f.Count > 1 {
		s.steps.end(q, f.At, int(f.Count-1))
	}
	s.kvComputed.observe(float64(q.PromptTokens - q.cached))
	s.prefill.observe((q.firstAt - q.scheduled).Seconds())
	s.decode.observe((f.At - q.firstAt).Seconds())
	if f.Count > 1 {
		s.tpot.observe((f.At - q.firstAt).Seconds() / float64(f.Count-1))
	}
}
