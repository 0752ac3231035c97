package engine

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
)

// life is whether the engine takes requests.
type life uint8

const (
	awake life = iota
	draining
	asleep
	dead
)

// Engine is one model server's engine. It is not safe for concurrent use; its
// driver serialises.
type Engine struct {
	cfg  Config
	now  machine.Time
	life life
	// drainDone: the end of the present drain was reported.
	drainDone bool
	stats     Stats

	reqs     []request
	unused   []int32
	arrivals uint64
	ids      map[RequestID]int32

	held     map[uint64]handle
	expiries []expiry
	expired  int // expiries before this one are gone

	adapters map[AdapterID]bool

	timeline timeline // BatchingIndependent
}

// New builds an engine, idle at time 0. The error lists every field that is
// wrong.
func New(cfg Config) (*Engine, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Batching != BatchingIndependent {
		return nil, fmt.Errorf("engine: %v batching is not available in this version: use independent", cfg.Batching)
	}
	e := &Engine{cfg: cfg, ids: map[RequestID]int32{}, held: map[uint64]handle{}}
	e.resetAdapters()
	return e, nil
}

func (e *Engine) resetAdapters() {
	e.adapters = make(map[AdapterID]bool, len(e.cfg.Adapters))
	for _, a := range e.cfg.Adapters {
		e.adapters[a] = true
	}
}

// Config is the configuration with its defaults filled in.
func (e *Engine) Config() Config { return e.cfg }

// Now is the engine's own time: the latest it was given.
func (e *Engine) Now() machine.Time { return e.now }

// InFlight is the number of requests in the engine.
func (e *Engine) InFlight() int { return len(e.ids) }

// Input plays everything due before now and then takes a message.
func (e *Engine) Input(now machine.Time, m Message, fx *Effects) {
	now = max(now, e.now)
	e.Advance(now, fx)
	switch m := m.(type) {
	case *Submit:
		e.submit(m, fx)
	case Abort:
		if s, ok := e.ids[m.ID]; ok {
			e.abortTimeline(s, fx)
		}
	case Resume:
		if s, ok := e.ids[m.ID]; ok {
			e.resumeTimeline(s)
		}
	case Control:
		e.control(m, fx)
	case KVArrived:
		if s, ok := e.ids[m.ID]; ok {
			e.arrivedTimeline(s, fx)
		}
	case KVFailed:
		if s, ok := e.ids[m.ID]; ok {
			e.failedTimeline(s, fx)
		}
	case KVReleased:
		e.release(e.now, m.Handle, ReasonStop, fx)
	}
}

// Next is when the engine has something to say or to decide, if ever.
func (e *Engine) Next() (machine.Time, bool) {
	at, ok := e.timeline.next(e.reqs)
	if x, held := e.nextExpiry(); held && x < at {
		at, ok = x, true
	}
	return at, ok
}

// Advance plays everything due up to now.
func (e *Engine) Advance(now machine.Time, fx *Effects) {
	for {
		at, ok := e.timeline.next(e.reqs)
		x, held := e.nextExpiry()
		switch {
		case ok && at <= now && at <= x:
			e.playTimeline(fx)
			continue
		case held && x <= now:
			e.release(x, e.expiries[e.expired].handle, ReasonTimeout, fx)
			continue
		}
		break
	}
	e.now = max(now, e.now)
}

func (e *Engine) submit(m *Submit, fx *Effects) {
	if code := e.check(m); code != CodeNone {
		e.stats.Rejected++
		f := fx.add(e.now, Rejected, m.ID)
		f.Code, f.Count = code, int32(min(m.PromptTokens, maxTokens))
		return
	}
	s := e.slot(m.ID)
	r := &e.reqs[s]
	r.prompt = int32(m.PromptTokens)
	r.total, r.stop = e.cfg.outputTokens(m)
	r.every = m.Interest == EveryToken
	r.hold, r.holdKV, r.remote = m.HoldAfterFirst, m.HoldKV, m.Remote
	e.stats.Accepted++
	fx.add(e.now, Accepted, m.ID)
	e.submitTimeline(s, m, fx)
}

// end ends a request at once, whatever it was doing.
func (e *Engine) end(s int32, why Reason, fx *Effects) {
	e.leaveTimeline(s, fx)
	e.finish(e.now, s, why, fx)
}

// finish ends a request that made all its tokens.
func (e *Engine) finish(at machine.Time, s int32, why Reason, fx *Effects) {
	r := &e.reqs[s]
	if r.holdKV && (why == ReasonStop || why == ReasonLength) {
		tokens := r.prompt + r.made - 1
		e.holdKV(at, r, (tokens+int32(e.cfg.BlockSize)-1)/int32(e.cfg.BlockSize), fx)
	}
	e.stats.Finished++
	f := fx.add(at, Finished, r.id)
	f.Reason, f.Count = why, r.made
	e.forget(s)
	e.drained(at, fx)
}

// drained reports the end of a drain when the last request is gone.
func (e *Engine) drained(at machine.Time, fx *Effects) {
	if e.life == draining && len(e.ids) == 0 && !e.drainDone {
		e.drainDone = true
		fx.add(at, ControlDone, 0).Op = OpDrain
	}
}
