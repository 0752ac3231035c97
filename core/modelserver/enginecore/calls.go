package enginecore

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// call is something that this server has asked for.
type call struct {
	id    Call
	what  errand
	seq   *Sequence         // of all but greetings
	to    *connector.Remote // nil: the external cache
	timer machine.Handle
	greet []*Sequence // who waits for the greeting

	// Of a cache that is fetched.
	step     step
	open     bool // there is a connection
	began    machine.Time
	posted   machine.Time // how long it took until the holder had answered
	granted  bool         // it has
	tokens   int
	bytes    int64
	told     bool   // the engine knows how it went, or wants to know no more
	released bool   // the engine needs the holder's blocks no more
	writer   string // the engine that the bytes come from
	stored   bool   // they lie in the external cache, or will
}

// errand is what a call is for.
type errand uint8

const (
	greeting errand = iota // somebody who has never answered
	finding                // how much of a prompt another server has
	looking                // how much the external cache has
	fetching               // a cache
	freeing                // a cache that was not fetched after all, so that its holder need not keep it
)

// step is how far a fetch or a freeing has come.
type step uint8

const (
	asking step = iota
	moving
	whole     // all has arrived, or nothing more will
	releasing // the holder is told that it is needed no more
)

var errLost = errors.New("a fault was asked for: the transfer is lost")

func (s *Core) call(what errand, q *Sequence, to *connector.Remote) *call {
	s.serial++
	c := &call{id: s.serial, what: what, seq: q, to: to, began: s.now}
	s.calls[c.id] = c
	if q != nil {
		q.fetches = c
	}
	return c
}

// ask puts a question, and gives whom it is for the time for a first byte.
func (s *Core) ask(c *call, q Question) {
	c.open = true
	s.after(s.c.PeerTimeout, &c.timer, timer{call: c})
	s.do(c.seq, Ask{c.id, c.to, q})
}

// hangUp ends a call.
func (s *Core) hangUp(c *call) {
	s.timers.Remove(&c.timer)
	if c.open {
		c.open = false
		s.do(c.seq, HangUp{c.id})
	}
	delete(s.calls, c.id)
}

// A fetch holds blocks of the engine from its beginning, so a server that has
// never answered is greeted first, without any: nobody who never answers holds
// blocks, and who answers no more holds them for PeerTimeout.

func (s *Core) greeted(r *connector.Remote) bool {
	_, ok := s.known.Get(r.Address())
	return ok
}

func (s *Core) note(c *call, answers bool) {
	if answers {
		s.known.Put(c.to.Address(), struct{}{}, 0)
	} else {
		s.known.Delete(c.to.Address())
	}
}

func (s *Core) greet(q *Sequence) {
	for _, c := range s.calls {
		if c.what == greeting && c.to.Address() == q.Remote.Address() {
			c.greet, q.fetches = append(c.greet, q), c
			return
		}
	}
	c := s.call(greeting, nil, q.Remote)
	c.greet, q.fetches = []*Sequence{q}, c
	s.ask(c, Question{Op: OpHello})
}

// leave takes a completion out of what it waits for before the engine has it.
func (s *Core) leave(q *Sequence) {
	switch c := q.fetches; c.what {
	case greeting:
		for i, o := range c.greet {
			if o == q {
				c.greet = append(c.greet[:i], c.greet[i+1:]...)
				break
			}
		}
		if len(c.greet) == 0 {
			s.hangUp(c)
		}
	default:
		s.hangUp(c)
	}
	q.fetches = nil
}

// met is the end of a greeting.
func (s *Core) met(c *call, err error) {
	s.hangUp(c)
	for _, q := range c.greet {
		q.fetches = nil
		switch {
		case err == nil:
			s.lookAround(q)
		case s.cfg.KVLoadFailure == engine.KVLoadRecompute:
			s.loses(q, c, err)
			q.Remote = nil
			s.lookAround(q)
		default:
			s.loses(q, c, err)
			s.end(q, engine.Finished, engine.ReasonKVFailed)
		}
	}
}

// pull fetches the cache that the engine has reserved blocks for.
func (s *Core) pull(f *engine.Effect, q *Sequence) {
	found := q.fetches // what was found of the prompt, if it is not the request that says
	c := s.call(fetching, q, q.Remote)
	c.tokens, c.bytes = int(f.Count), f.Bytes
	if q.Remote != nil {
		s.ask(c, fetch(q.Remote))
		return
	}
	c.to, c.writer, c.stored = found.to, found.writer, found.what == looking
	s.move(c)
}

func (s *Core) move(c *call) {
	c.step = moving
	s.do(c.seq, Move{To: s.c.Index, Call: c.id, From: c.writer, Stored: c.stored, Bytes: c.bytes})
}

func (s *Core) replied(id Call, a *Reply) {
	c := s.calls[id]
	if c == nil || !c.open || c.timer == 0 {
		return // it came too late, or nobody has asked
	}
	s.timers.Remove(&c.timer)
	s.note(c, true)
	var err error
	if a.Err != "" {
		err = fmt.Errorf("%.500s", a.Err)
	}
	switch {
	case c.what == greeting:
		s.met(c, err)
	case c.what == finding:
		s.hangUp(c)
		if err != nil {
			s.do(c.seq, Lost{c.to, err})
		}
		s.nearby(c, a.Tokens, a.EngineID)
	case c.step == releasing:
		if err != nil {
			s.do(c.seq, Kept{err})
		}
		s.hangUp(c)
	case err != nil:
		s.failed(c, err)
	case a.Waiting && c.what == fetching:
		// The holder says when it is enough; one that says nothing more is waited
		// for a little longer.
		s.after(s.cfg.KVHoldTimeout.Add(s.c.PeerTimeout), &c.timer, timer{call: c})
	case a.Waiting:
		s.after(s.c.PeerTimeout, &c.timer, timer{call: c})
	case c.what == freeing:
		s.giveBack(c)
	default:
		c.posted, c.granted = s.now-c.began, true
		c.writer = cmp.Or(c.to.EngineID, a.EngineID)
		s.move(c)
	}
}

// late is the end of the time for an answer.
func (s *Core) late(c *call) {
	s.lost(c, fmt.Errorf("%s has not answered in time", c.to.Address()))
}

func (s *Core) broke(id Call, err error) {
	c := s.calls[id]
	if c == nil || !c.open {
		return
	}
	c.open = false
	s.lost(c, err)
}

// lost is a call whose connection is no good.
func (s *Core) lost(c *call, err error) {
	s.note(c, false)
	switch {
	case c.what == greeting:
		s.met(c, err)
	case c.what == finding:
		s.hangUp(c)
		s.do(c.seq, Lost{c.to, err})
		s.nearby(c, 0, "")
	case c.step == asking:
		s.failed(c, err)
	case c.step == releasing:
		s.do(c.seq, Kept{err})
		s.hangUp(c)
	default: // what moves goes on: the bytes travel another way
		s.do(c.seq, Kept{err})
	}
}

// loses counts a cache that does not come.
func (s *Core) loses(q *Sequence, c *call, err error) {
	s.stats.FetchFailed(1)
	s.do(q, Lost{c.to, err})
}

// found is what the external cache has of a prompt.
func (s *Core) found(m *Found) {
	if c := s.calls[m.Call]; c != nil && c.what == looking {
		s.hangUp(c)
		s.nearby(c, m.Blocks*s.cfg.BlockSize, m.Writer)
	}
}

// nearby lets a completion begin with what was found of its prompt.
func (s *Core) nearby(c *call, tokens int, writer string) {
	if tokens > 0 {
		c.writer = writer
		c.seq.fetch(tokens)
	}
	s.begin(c.seq)
}

// failed tells the engine that a cache will not come.
func (s *Core) failed(c *call, err error) {
	c.step = whole
	if c.what == freeing { // it has let go by itself
		s.hangUp(c)
		return
	}
	if !c.told {
		c.told = true
		s.loses(c.seq, c, err)
		s.input(engine.KVFailed{ID: c.seq.Submit.ID})
	}
	s.settle(c)
}

// moved takes what becomes of the bytes.
func (s *Core) moved(m *Moved) {
	c := s.calls[m.Call]
	if c == nil || c.step != moving {
		return
	}
	if m.How == Failed {
		s.failed(c, fmt.Errorf("the transfer of %d bytes failed", c.bytes))
		return
	}
	if m.How == Arrived {
		c.step = whole
	}
	switch {
	case c.told:
		s.settle(c)
		return
	case c.seq.LoseKV:
		c.told = true
		s.loses(c.seq, c, errLost)
		s.input(engine.KVFailed{ID: c.seq.Submit.ID})
	default:
		c.told = true
		s.stats.Fetched(&c.seq.Counted, c.tokens, s.cfg.BlockSize, m.Bytes, c.posted.Seconds(),
			(s.now - c.began).Seconds())
		s.do(c.seq, Fetched{Tokens: c.tokens, Bytes: m.Bytes, Took: s.now - c.began, Posted: c.posted})
		s.input(engine.KVArrived{ID: c.seq.Submit.ID})
	}
	s.settle(c)
}

// settle ends a fetch that the engine and the network are through with. While
// there is a connection its holder can be told that it is needed no more.
func (s *Core) settle(c *call) {
	switch {
	case c.step != whole || !c.released:
	case c.open && c.granted:
		s.giveBack(c)
	default:
		s.hangUp(c)
	}
}

func (s *Core) giveBack(c *call) {
	c.step = releasing
	s.ask(c, Question{Op: OpRelease})
}

// release is the engine needing a holder's blocks no more. A transfer that
// nobody waits for any more is broken off; of a pipelined one the rest still
// comes out of the holder's blocks.
func (s *Core) release(q *Sequence) {
	if q == nil {
		return
	}
	c := q.fetches
	switch {
	case c == nil || c.what != fetching:
		// Nothing was fetched: all of it was here already, or nobody waits for it
		// any more. The holder need not keep it until its time is up.
		if q.Remote != nil {
			s.ask(s.call(freeing, q, q.Remote), fetch(q.Remote))
		}
		return
	case c.step == moving && !c.told:
		s.do(q, Cancel{To: s.c.Index, Call: c.id})
	case c.step == asking:
		c.step = whole
	}
	c.told, c.released = true, true
	s.settle(c)
}

// drop ends what a completion fetches, after a crash: its connections are gone
// with it.
func (s *Core) drop(q *Sequence) {
	c := q.fetches
	if c == nil || c.what != fetching || s.calls[c.id] == nil {
		return
	}
	if c.step == moving {
		s.do(q, Cancel{To: s.c.Index, Call: c.id})
	}
	s.hangUp(c)
}
