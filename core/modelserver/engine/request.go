package engine

import "github.com/windtunnel/windtunnel/core/machine"

// phase is a request's state in the scheduler.
type phase uint8

const (
	phaseFree    phase = iota // the slot is unused
	phaseWaiting              // in the waiting queue
	phasePulling              // blocks reserved, the KV transfer from another engine is running
	phasePrefill              // running, prompt not yet computed
	phaseDecode               // running, one token per step
	phasePaused               // place in the batch kept, waiting for Resume
	phaseParked               // preempted while paused
)

// request is the engine's state of one request in flight. Requests live in slots that the engine reuses. A slot number
// is the engine's own name for a request.
type request struct {
	id      RequestID
	arrival uint64 // number of the submission; order of service within a priority
	holding        // its KV blocks
	remote  RemoteKV

	flags

	generation uint32 // differs between the slot's former and present owners
	priority   int32  // 0 unless PolicyPriority
	adapter    AdapterID

	prompt int32 // tokens
	total  int32 // output tokens that it will make
	made   int32 // output tokens made; while it decodes in a batch, see madeOffset
	seen   int32 // output tokens reported, if every

	// In a batch.
	computed   int32 // tokens with KV; while it decodes, see kvOffset
	take       int32 // tokens that this step, or the transfer, adds
	prev, next int32 // the batch's list
	watch      int32 // place in batch.watched
	admission  uint64
	kvOffset   int64        // computed = kvOffset + batch.clock
	madeOffset int64        // made = batch.clock - madeOffset
	late       machine.Time // time of the last token, if that is more than a step ago; else 0

	// BatchingIndependent.
	start       machine.Time // time at which decoding began or continued
	base        int32        // tokens made at start
	uncached    bool         // computes its whole prompt, whatever the cache holds
	tokenTime   machine.Time
	prefillTime machine.Time
	due         machine.Time // time of its event in the timeline
}

// flags are a request's phase and its properties.
type flags struct {
	phase   phase
	every   bool // Interest EveryToken
	quiet   bool // Interest EndOnly
	hold    bool // pause after the first token, unless resumed before
	holdKV  bool
	stop    bool // ends with ReasonStop rather than ReasonLength
	abort   bool // ends at the end of the running step
	first   bool // its first token exists
	again   bool // was preempted
	ready   bool // waits with blocks and r.computed tokens in them
	fetched bool // its KV came from another engine
	took    bool // got something in the step being composed by walk
	starved bool // decodes, but not in this step
}

// slot takes an unused slot for a submission.
func (e *Engine) slot(m *Submit) int32 {
	var s int32
	if n := len(e.unused); n > 0 {
		s, e.unused = e.unused[n-1], e.unused[:n-1]
	} else {
		s = int32(len(e.reqs))
		e.reqs = append(e.reqs, request{})
	}
	e.arrivals++
	e.ids.Set(m.ID, s)
	r := &e.reqs[s]
	*r = request{id: m.ID, generation: uint32(e.arrivals), arrival: e.arrivals}
	r.prompt = int32(m.PromptTokens)
	r.total, r.stop = e.cfg.outputTokens(m)
	r.every, r.quiet = m.Interest == EveryToken, m.Interest == EndOnly && !m.HoldAfterFirst
	r.hold, r.holdKV, r.remote = m.HoldAfterFirst, m.HoldKV, m.Remote
	r.adapter, r.uncached = m.Adapter, m.SkipReadingCache
	if e.cfg.Policy == PolicyPriority {
		r.priority = m.Priority
	}
	r.chain = chain{hashes: m.Hashes, key: mix(mix(e.cfg.Index+1) + e.arrivals*golden)}
	if r.adapter != 0 {
		r.salt = mix(uint64(r.adapter) * golden)
	}
	return s
}

// forget frees a slot.
func (e *Engine) forget(s int32) {
	r := &e.reqs[s]
	e.ids.Delete(r.id)
	*r = request{}
	e.unused = append(e.unused, s)
}

// outputTokens returns the number of tokens that a request will make, and whether it ends by itself rather than by a
// limit.
func (c *Config) outputTokens(s *Submit) (total int32, stop bool) {
	limit := c.MaxModelLen - s.PromptTokens
	if s.MaxTokens > 0 {
		limit = min(limit, s.MaxTokens)
	}
	if s.HoldKV {
		limit = min(limit, max(s.MaxTokens, 1))
	}
	if s.StopAfter > 0 && !s.IgnoreEOS {
		if natural := max(s.StopAfter, s.MinTokens); natural <= limit {
			return int32(natural), true
		}
	}
	return int32(limit), false
}

// natural returns the reason of an end after all tokens.
func (r *request) natural() Reason {
	if r.stop {
		return ReasonStop
	}
	return ReasonLength
}

// check returns the reason to reject a request, or CodeNone.
func (e *Engine) check(s *Submit) Code {
	switch {
	case e.life == dead:
		return CodeDead
	case e.life == asleep:
		return CodeAsleep
	case e.life == draining:
		return CodeDraining
	case s.PromptTokens < 1 || s.MaxTokens < 0 || s.StopAfter < 0 || s.MinTokens < 0 ||
		s.Remote.Tokens < 0 || s.PrefillTime < 0 || s.TokenTime < 0:
		return CodeBadRequest
	case s.PromptTokens >= e.cfg.MaxModelLen:
		return CodeTooLong
	case e.ids.Len() >= e.cfg.MaxInFlight:
		return CodeFull
	}
	if _, taken := e.ids.Get(s.ID); taken {
		return CodeBadRequest
	}
	if _, taken := e.held[uint64(s.ID)]; taken {
		return CodeBadRequest
	}
	if s.Adapter != 0 && !e.loras.known[s.Adapter] {
		return CodeUnknownAdapter
	}
	return CodeNone
}
