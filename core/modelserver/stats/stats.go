package stats

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Stats are one server's counts and histograms. They hear effects in the order
// in which things happened, so none is ever lost or negative.
type Stats struct {
	// Success counts requests by how they ended.
	Success [finishReasons]uint64
	// QueriedTokens are the prompt tokens that were looked for in the prefix
	// cache, CachedTokens those that were found.
	QueriedTokens, CachedTokens uint64

	version        uint64       // changes whenever the counts do
	active         machine.Time // when they last did
	heard          bool         // something, since Delivered
	preemptions    uint64
	blockTokens    int
	refused        uint64 // because too many waited
	externalTokens uint64 // prompt tokens asked of other servers
	externalHits   uint64 // of these, fetched

	durations
	sizes
	transfers
	blocks
	latest   latest // of e2e
	rates    rates
	steps    stepTimes
	hardware *hardware.Hardware // nil where none is simulated
	noUsage  bool               // nobody reads how much of it the steps used
	onlyNow  bool               // nothing of what has happened is counted
}

// durations are those of requests and of their tokens.
type durations struct{ ttft, itl, tpot, e2e, queue, inference, prefill, decode histogram }

// sizes are those of requests and of steps, and how often each request that ended was preempted.
type sizes struct {
	promptTokens, generationTokens, maxGeneration, paramMaxTokens, paramN, iterationTokens, kvComputed,
	preemptionsEach histogram
}

// transfers are KV caches that came from other servers.
type transfers struct {
	transferSeconds, transferBytes  histogram
	postSeconds, descriptors        histogram // until the holder has answered; blocks
	failedTransfers, expiredHandles uint64
}

// blocks are those of the KV cache that are sampled.
type blocks struct {
	residency                            *residency // nil where none are
	blockLifetime, blockIdle, blockReuse histogram
}

// New counts for a server with this engine.
func New(c *engine.Config) *Stats {
	s := new(Stats)
	s.init(c.MaxModelLen)
	s.blockTokens = c.BlockSize
	if timer, ok := c.Timer.(*latency.Timer); ok {
		s.hardware = timer.Hardware()
	}
	return s
}

// SkipUsage leaves out how much of the hardware each step uses, for a driver
// whose readers want none of UsageFamilies: it costs time for every step.
func (s *Stats) SkipUsage() { s.noUsage = true }

// OnlyNow leaves out all that has happened, for a driver whose readers want nothing but
// what WriteNow tells.
func (s *Stats) OnlyNow() { s.onlyNow = true }

// Hardware is what the engine runs on, nil where none is simulated.
func (s *Stats) Hardware() *hardware.Hardware { return s.hardware }

// Sequence is one completion in the engine: the unit that it schedules.
type Sequence struct {
	PromptTokens int
	// EveryToken says that the engine tells of each token.
	EveryToken bool
	// N and MaxTokens are the request's parameters; N 0 is 1, MaxTokens 0 none.
	N, MaxTokens int
	// Adapter is the LoRA adapter's name, or empty.
	Adapter string
	// Blocks are the prompt's block hashes, where a sample of blocks is followed.
	Blocks []uint64
	// Arrived is when the engine got it.
	Arrived machine.Time

	scheduled, firstAt, lastAt machine.Time
	begun, first               bool // scheduled and firstAt are known
	cached                     int
	preempted                  int
	fetched                    int // tokens that came from another server
	// steps that ended by its first token, by duration; where not every token is told
	before [itlBuckets]uint32
}

// Scheduled says whether the engine has taken it up.
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

// Effect hears an effect of the engine's, and of which sequence: nil where it
// concerns none.
func (s *Stats) Effect(fx *engine.Effects, f *engine.Effect, q *Sequence) {
	s.active, s.heard = f.At, true
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
		if !q.begun { // it comes again after a preemption
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

// Delivered is told when all effects of one call of the engine have been heard.
func (s *Stats) Delivered() {
	if s.heard {
		s.heard = false
		s.version++
		s.settle()
	}
}

// Computed is told whether the engine had something to compute from one moment
// to another.
func (s *Stats) Computed(from, to machine.Time, computing bool) {
	if computing && !s.onlyNow {
		s.rates.busySpan(from, to)
	}
}

// Fetched counts a KV cache that came from another server for q: its tokens in blocks
// of so many, its bytes, how long until the holder had answered and until it
// was there, in seconds.
func (s *Stats) Fetched(q *Sequence, tokens, blockTokens int, bytes int64, posted, took float64) {
	q.fetched += tokens
	s.externalHits += uint64(tokens)
	s.transferSeconds.observe(took)
	s.postSeconds.observe(posted)
	s.descriptors.observe(float64((tokens + blockTokens - 1) / blockTokens))
	s.transferBytes.observe(float64(bytes))
}

// FetchFailed counts KV caches that did not come.
func (s *Stats) FetchFailed(n int) { s.failedTransfers += uint64(n) }

func (s *Stats) firstToken(q *Sequence, f *engine.Effect) {
	s.ttft.observe((f.At - q.Arrived).Seconds()) // from arrival: waiting counts
	if !q.EveryToken {
		s.steps.begin(q)
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
		s.queue.observe((f.At - q.Arrived).Seconds())
		return
	}
	s.queue.observe((q.scheduled - q.Arrived).Seconds())
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
