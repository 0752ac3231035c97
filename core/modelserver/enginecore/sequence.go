package enginecore

import (
	"cmp"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Sequence is one completion: the unit that the engine schedules. Who makes it
// fills in the fields before Submit, and changes none afterwards.
type Sequence struct {
	// Submit is what the engine is asked for. Its ID is made of the request's;
	// the Core sees to it that no two in flight have the same, and fills in
	// Remote.
	Submit engine.Submit
	// Counted is what is counted of it; its Arrived is filled in.
	Counted stats.Sequence
	// Owner is the driver's.
	Owner any

	// Remote, if not nil, has the prompt's KV cache.
	Remote *connector.Remote
	// Source, if not nil, may have the KV of the prompt's beginning in its prefix
	// cache.
	Source *connector.Remote
	// Prefix are the hashes of the prompt's whole blocks, where Submit.Hashes does
	// not begin with them.
	Prefix []uint64
	// Key is what another server asks by for this one's KV cache, where it is told
	// beforehand.
	Key string
	// LoseKV is a fault: what is fetched arrives, and is no good.
	LoseKV bool

	// Tokens are the ids of the prompt's tokens and of the answer's behind them,
	// for KV events.
	Tokens func(first, count int) []uint32

	// Hold are the blocks that are kept for another server, from the engine's
	// KVHeld on.
	Hold *Hold

	state   sequenceState
	entered bool  // the engine was given it
	fetches *call // what it waits for before it is in the engine, or the cache that it fetches
	stores  bool  // its blocks are to be put into the external cache
}

type sequenceState uint8

const (
	unknown  sequenceState = iota
	arriving               // somebody is asked before the engine has it
	inEngine
	ended
)

// Hold is a KV cache that is kept for another server.
type Hold struct {
	Blocks connector.Blocks
	Tokens int // of the prompt
	handle uint64
	key    string
}

// Entered says whether the engine was given the sequence. One that is over before
// that is none that it has ended.
func (q *Sequence) Entered() bool { return q.entered }

// Forgotten says whether the sequence has ended and the Core, which asked nobody else
// about it, has no more to do with it once the effects at hand are carried out.
func (q *Sequence) Forgotten() bool {
	return q.state == ended && q.fetches == nil && q.Hold == nil && q.Remote == nil && q.Source == nil
}

func (s *Core) submit(q *Sequence) {
	q.state = arriving
	if r := q.Remote; r != nil && !s.greeted(r) {
		s.greet(q)
		return
	}
	s.lookAround(q)
}

// otherEngine is the engine's name for every other server: which one it is says
// the Sequence.
const otherEngine = 1

// fetch has the engine fetch the beginning of a prompt.
func (q *Sequence) fetch(tokens int) {
	n := q.Submit.PromptTokens
	q.Submit.Remote = engine.RemoteKV{From: otherEngine, Tokens: min(cmp.Or(tokens, n), n)}
}

// lookAround lets a prompt begin with what is elsewhere, before the engine is
// asked to compute it.
func (s *Core) lookAround(q *Sequence) {
	prefix := s.prefix(q)
	switch {
	case q.Remote != nil:
		q.fetch(q.Remote.Tokens)
	case s.cfg.DisablePrefixCaching || len(prefix) == 0:
	case s.c.ViaStore:
		q.stores = true
		c := s.call(looking, q, nil)
		s.do(q, LookUp{To: s.c.Index, Call: c.id, Hashes: prefix})
		return
	case q.Source != nil:
		s.ask(s.call(finding, q, q.Source), Question{Op: OpFind, Hashes: prefix})
		return
	}
	s.begin(q)
}

// prefix are the hashes of a prompt's whole blocks, as far as they are known.
func (s *Core) prefix(q *Sequence) []uint64 {
	list, blocks := q.Submit.Hashes, q.Submit.PromptTokens/s.cfg.BlockSize
	if len(list) < blocks {
		list = q.Prefix
	}
	return list[:min(blocks, len(list))]
}

// begin gives a completion to the engine.
func (s *Core) begin(q *Sequence) {
	// Ids are made from request ids; two requests that are called the same and
	// are in flight at once must still differ.
	for s.has(q.Submit.ID) || s.holds[uint64(q.Submit.ID)] != nil {
		q.Submit.ID++
	}
	q.Submit.Remote.Handle = uint64(q.Submit.ID)
	s.sequences.Set(q.Submit.ID, q)
	q.state, q.entered, q.Counted.Arrived = inEngine, true, s.now
	if s.stats.SamplesBlocks() {
		q.Counted.Blocks = q.Submit.Hashes
	}
	s.input(&q.Submit)
}

// Replace has another Sequence stand for one from now on, which it becomes like but for
// its Owner.
func (s *Core) Replace(q, by *Sequence) {
	owner := by.Owner
	*by = *q
	by.Owner = owner
	if was, _ := s.sequences.Get(q.Submit.ID); was == q {
		s.sequences.Set(q.Submit.ID, by)
	}
	if c := q.fetches; c != nil {
		if c.seq == q {
			c.seq = by
		}
		for i := range c.greet {
			if c.greet[i] == q {
				c.greet[i] = by
			}
		}
	}
}

// Left says whether the sequence has ended and nothing under way is for it: its memory may
// be used again once the effects at hand are carried out.
func (s *Core) Left(q *Sequence) bool {
	return q.state == ended && (q.fetches == nil || s.calls[q.fetches.id] != q.fetches)
}

func (s *Core) has(id engine.RequestID) bool {
	_, ok := s.sequences.Get(id)
	return ok
}

// end says that a completion is over which the engine does not have.
func (s *Core) end(q *Sequence, kind engine.Kind, why engine.Reason) {
	q.state, q.fetches = ended, nil
	s.fx.Engine.List = append(s.fx.Engine.List, engine.Effect{At: s.now, Kind: kind, Request: q.Submit.ID, Reason: why})
	s.fx.heard++
	s.fx.List = append(s.fx.List, Effect{At: s.now, Engine: int32(s.fx.heard - 1), Sequence: q})
}

func (s *Core) abort(q *Sequence) {
	switch q.state {
	case arriving:
		s.leave(q)
		s.end(q, engine.Aborted, engine.ReasonNone)
	case inEngine:
		s.input(engine.Abort{ID: q.Submit.ID})
	}
}

func (s *Core) resume(q *Sequence) {
	switch q.state {
	case arriving:
		q.Submit.HoldAfterFirst = false
	case inEngine:
		s.input(engine.Resume{ID: q.Submit.ID})
	}
}

// computed puts the blocks of a prompt that has been computed into the external
// cache.
func (s *Core) computed(q *Sequence) {
	if q != nil && q.stores {
		q.stores = false
		s.do(q, Put{From: s.c.Index, Hashes: s.prefix(q)})
	}
}
