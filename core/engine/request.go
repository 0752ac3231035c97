package engine

import "github.com/windtunnel/windtunnel/core/machine"

// phase is where a request is in its life.
type phase uint8

const (
	phaseFree    phase = iota // the slot is unused
	phaseWaiting              // in the waiting queue
	phasePulling              // blocks reserved, KV on its way from another engine
	phasePrefill              // running, prompt not yet computed
	phaseDecode               // running, one token per step
	phasePaused               // running slot kept, waiting for Resume
)

// request is what the engine knows of one request in flight. Requests live in
// slots that are used again; a slot number is the engine's own name for it.
type request struct {
	id     RequestID
	phase  phase
	every  bool // Interest EveryToken
	hold   bool // pause after the first token, unless resumed before
	holdKV bool
	stop   bool // ends with ReasonStop rather than ReasonLength
	abort  bool // told to end at the end of the running step
	first  bool // its first token exists

	generation uint32 // tells a stale event of the slot's former owner

	prompt int32 // tokens
	total  int32 // output tokens it will make
	made   int32 // output tokens made

	remote RemoteKV

	arrival uint64 // counts submissions; order of service within a priority

	// BatchingIndependent
	start       machine.Time // when decoding began or went on
	base        int32        // tokens made at start
	tokenTime   machine.Time
	prefillTime machine.Time
	due         machine.Time // its event in the timeline
}

// slot takes an unused slot for id.
func (e *Engine) slot(id RequestID) int32 {
	var s int32
	if n := len(e.unused); n > 0 {
		s, e.unused = e.unused[n-1], e.unused[:n-1]
	} else {
		s = int32(len(e.reqs))
		e.reqs = append(e.reqs, request{})
	}
	generation := e.reqs[s].generation + 1
	e.arrivals++
	e.reqs[s] = request{id: id, generation: generation, arrival: e.arrivals}
	e.ids[id] = s
	return s
}

// forget gives a slot back.
func (e *Engine) forget(s int32) {
	r := &e.reqs[s]
	delete(e.ids, r.id)
	*r = request{generation: r.generation}
	e.unused = append(e.unused, s)
}

// outputTokens is how many tokens a request will make, and whether it ends by
// itself rather than by a limit.
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

// check is why a request cannot be taken, or CodeNone.
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
	case len(e.ids) >= e.cfg.MaxInFlight:
		return CodeFull
	}
	if _, taken := e.ids[s.ID]; taken {
		return CodeBadRequest
	}
	if _, taken := e.held[uint64(s.ID)]; taken {
		return CodeBadRequest
	}
	if s.Adapter != 0 && !e.adapters[s.Adapter] {
		return CodeUnknownAdapter
	}
	return CodeNone
}
