package enginecore

import (
	"cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Sequence is one completion: the unit that the engine schedules. The caller fills in the fields before Submit, and
// changes none afterwards.
type Sequence struct {
	// Submit is the submission to the engine. Its ID depends on the request's. The Core makes it unique among those in
	// flight, and fills in Remote.
	Submit engine.Submit
	// Counted holds the completion's counts. The Core fills in Arrived.
	Counted stats.Sequence
	// Owner belongs to the driver.
	Owner any

	// Remote, if not nil, is the server that holds the prompt's KV cache.
	Remote *connector.Remote
	// Source, if not nil, is a server that may have the KV of the prompt's beginning in its prefix cache.
	Source *connector.Remote
	// Prefix holds the hashes of the prompt's full blocks, if Submit.Hashes does not begin with them.
	Prefix []uint64
	// Key is the key by which another server asks for this completion's KV cache, if the servers agree on one
	// beforehand.
	Key string
	// LoseKV is a fault: the fetched cache arrives, but is unusable.
	LoseKV bool
	// LostKV is why a cache did not arrive, nil where none was lost.
	LostKV error

	// Tokens returns the ids of the prompt's tokens and then of the answer's, for KV events.
	Tokens func(first, count int) []uint32

	// Hold describes the blocks kept for another server, from the engine's KVHeld on.
	Hold *Hold

	state   sequenceState
	entered bool           // the engine has received it
	fetches *call          // the call that it waits for before it enters the engine, or its fetch
	stores  bool           // the Core writes its blocks to the external cache
	reads   machine.Handle // the timer until it leaves the API server
	leaves  machine.Key    // the timer's key
}

type sequenceState uint8

const (
	unknown  sequenceState = iota
	arriving               // a call is open before the engine gets it
	reading                // in the API server
	inEngine
	ended
)

// Hold is a KV cache kept for another server.
type Hold struct {
	Blocks connector.Blocks
	Tokens int // length of the prompt
	handle uint64
	key    string
}

// Entered reports whether the engine has received the sequence. A sequence that ends before that never counts as ended
// in the engine.
func (q *Sequence) Entered() bool { return q.entered }

// Forgotten reports whether the sequence has ended and the Core, which made no calls for it, does not need it after the
// present effects are carried out.
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

// otherEngine is the engine's id of every other server. The Sequence says which server it is.
const otherEngine = 1

// fetch makes the engine fetch the beginning of a prompt.
func (q *Sequence) fetch(tokens int) {
	n := q.Submit.PromptTokens
	q.Submit.Remote = engine.RemoteKV{From: otherEngine, Tokens: min(cmp.Or(tokens, n), n)}
}

// lookAround looks for the beginning of a prompt in other caches, before the engine computes it.
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
	s.enterAPI(q)
}

// prefix returns the hashes of a prompt's full blocks, as far as they are known.
func (s *Core) prefix(q *Sequence) []uint64 {
	list, blocks := q.Submit.Hashes, q.Submit.PromptTokens/s.cfg.BlockSize
	if len(list) < blocks {
		list = q.Prefix
	}
	return list[:min(blocks, len(list))]
}

// enterAPI gives a completion to the engine, after the API server.
func (s *Core) enterAPI(q *Sequence) {
	q.Counted.Arrived = s.now
	if s.api.Free() {
		s.enter(q)
		return
	}
	wait := s.api.Enter(s.now, q.Submit.PromptTokens, s.eng.Generated())
	s.timings++
	q.state = reading
	q.leaves = machine.Key{First: int64(s.now.Add(wait)), Second: s.timings}
	s.timers.Put(&q.reads, q.leaves, timer{seq: q})
}

// enter gives a completion to the engine.
func (s *Core) enter(q *Sequence) {
	// Ids depend on request ids. Two requests in flight with the same id must still get different ones.
	for s.has(q.Submit.ID) || s.holds[uint64(q.Submit.ID)] != nil {
		q.Submit.ID++
	}
	q.Submit.Remote.Handle = uint64(q.Submit.ID)
	s.sequences.Set(q.Submit.ID, q)
	q.state, q.entered, q.Counted.Queued = inEngine, true, s.now
	if s.stats.SamplesBlocks() {
		q.Counted.Blocks = q.Submit.Hashes
	}
	s.input(&q.Submit)
}

// Replace replaces a Sequence in the Core with a copy that differs only in its Owner.
func (s *Core) Replace(q, by *Sequence) {
	owner := by.Owner
	*by = *q
	by.Owner = owner
	if was, _ := s.sequences.Get(q.Submit.ID); was == q {
		s.sequences.Set(q.Submit.ID, by)
	}
	if by.state == reading {
		s.timers.Remove(&q.reads)
		by.reads = 0
		s.timers.Put(&by.reads, by.leaves, timer{seq: by})
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

// Left reports whether the sequence has ended and no call for it is open. Its memory may be reused after the present
// effects are carried out.
func (s *Core) Left(q *Sequence) bool {
	return q.state == ended && (q.fetches == nil || s.calls[q.fetches.id] != q.fetches)
}

func (s *Core) has(id engine.RequestID) bool {
	_, ok := s.sequences.Get(id)
	return ok
}

// end reports the end of a completion that the engine does not have.
func (s *Core) end(q *Sequence, kind engine.Kind, why engine.Reason) {
	q.state, q.fetches = ended, nil
	s.fx.Engine.List = append(s.fx.Engine.List, engine.Effect{At: s.now, Kind: kind, Request: q.Submit.ID, Reason: why})
	s.fx.applied++
	s.fx.List = append(s.fx.List, Effect{At: s.now, Engine: int32(s.fx.applied - 1), Sequence: q})
}

func (s *Core) abort(q *Sequence) {
	switch q.state {
	case arriving:
		s.leave(q)
		s.end(q, engine.Aborted, engine.ReasonNone)
	case reading:
		s.timers.Remove(&q.reads)
		s.end(q, engine.Aborted, engine.ReasonNone)
	case inEngine:
		s.input(engine.Abort{ID: q.Submit.ID})
	}
}

func (s *Core) resume(q *Sequence) {
	switch q.state {
	case arriving, reading:
		q.Submit.HoldAfterFirst = false
	case inEngine:
		s.input(engine.Resume{ID: q.Submit.ID})
	}
}

// computed writes the blocks of a computed prompt to the external cache.
func (s *Core) computed(q *Sequence) {
	if q != nil && q.stores {
		q.stores = false
		s.do(q, Put{From: s.c.Index, Hashes: s.prefix(q)})
	}
}
