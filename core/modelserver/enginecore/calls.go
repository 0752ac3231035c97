package enginecore

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// call is a request of this server to another server or to the external cache.
type call struct {
	id    Call
	what  errand
	seq   *Sequence         // of every call but greetings
	to    *connector.Remote // nil: the external cache
	timer machine.Handle
	greet []*Sequence // completions that wait for the greeting

	// For a call that fetches a cache.
	step     step
	open     bool // the connection is open
	began    machine.Time
	posted   machine.Time // time from the request to the holder's answer
	granted  bool         // the holder has answered
	tokens   int
	bytes    int64
	settled  bool   // the engine has the result, or no longer needs it
	released bool   // the engine no longer needs the holder's blocks
	writer   string // the engine that sends the bytes
	stored   bool   // the bytes are, or will be, in the external cache
}

// errand is the purpose of a call.
type errand uint8

const (
	greeting errand = iota // a server that has never answered
	finding                // how much of a prompt another server has
	looking                // how much of a prompt the external cache has
	fetching               // a cache
	freeing                // a cache that was not fetched after all, so that its holder need not keep it
)

// step is the progress of a fetch or a freeing.
type step uint8

const (
	asking step = iota
	moving
	whole     // all has arrived, or nothing more will
	releasing // reporting to the holder that its cache is no longer needed
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

// ask sends a question, and allows PeerTimeout for the first byte of the answer.
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

// A fetch holds blocks of the engine from its beginning. The Core therefore first greets a server that has never
// answered, which takes no blocks. A server that never answers then holds no blocks, and one that stops answering holds
// them for PeerTimeout.

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

// leave ends the waits of a completion that has not entered the engine.
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

// met ends a greeting.
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

// pull fetches the cache for which the engine has reserved blocks.
func (s *Core) pull(f *engine.Effect, q *Sequence) {
	found := q.fetches // the cached part of the prompt, if the request does not name it
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
		return // too late, or unasked
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
		// The holder decides when it stops waiting. If it sends nothing more, wait a little longer than that.
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

// late handles a missing answer at the end of its time.
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

// lost handles a call whose connection is broken.
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
	default: // a running transfer continues: its bytes take another path
		s.do(c.seq, Kept{err})
	}
}

// loses counts a cache that does not arrive.
func (s *Core) loses(q *Sequence, c *call, err error) {
	s.stats.FetchFailed(1)
	q.LostKV = err
	s.do(q, Lost{c.to, err})
}

// found handles the external cache's answer about a prompt.
func (s *Core) found(m *Found) {
	if c := s.calls[m.Call]; c != nil && c.what == looking {
		s.hangUp(c)
		s.nearby(c, m.Blocks*s.cfg.BlockSize, m.Writer)
	}
}

// nearby starts a completion with the cached part of its prompt.
func (s *Core) nearby(c *call, tokens int, writer string) {
	if tokens > 0 {
		c.writer = writer
		c.seq.fetch(tokens)
	}
	s.enterAPI(c.seq)
}

// failed reports to the engine that a cache will not arrive.
func (s *Core) failed(c *call, err error) {
	c.step = whole
	if c.what == freeing { // the holder frees it by itself
		s.hangUp(c)
		return
	}
	if !c.settled {
		c.settled = true
		s.loses(c.seq, c, err)
		s.input(engine.KVFailed{ID: c.seq.Submit.ID})
	}
	s.settle(c)
}

// moved handles the progress of a transfer.
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
	case c.settled:
		s.settle(c)
		return
	case c.seq.LoseKV:
		c.settled = true
		s.loses(c.seq, c, errLost)
		s.input(engine.KVFailed{ID: c.seq.Submit.ID})
	default:
		c.settled = true
		s.stats.Fetched(&c.seq.Counted, c.tokens, s.cfg.BlockSize, m.Bytes, c.posted.Seconds(),
			(s.now - c.began).Seconds())
		s.do(c.seq, Fetched{Tokens: c.tokens, Bytes: m.Bytes, Took: s.now - c.began, Posted: c.posted})
		s.input(engine.KVArrived{ID: c.seq.Submit.ID})
	}
	s.settle(c)
}

// settle ends a fetch that needs nothing more from the engine or the network. While the connection is open, the Core
// can still report to the holder that its cache is no longer needed.
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

// release notes that the engine no longer needs a holder's blocks. The Core cancels a transfer that no completion waits
// for. The rest of a pipelined transfer still reads the holder's blocks.
func (s *Core) release(q *Sequence) {
	if q == nil {
		return
	}
	c := q.fetches
	switch {
	case c == nil || c.what != fetching:
		// Nothing was fetched: this server had all of it already, or no completion waits for it any more. The holder
		// need not keep it until its timeout.
		if q.Remote != nil {
			s.ask(s.call(freeing, q, q.Remote), fetch(q.Remote))
		}
		return
	case c.step == moving && !c.settled:
		s.do(q, Cancel{To: s.c.Index, Call: c.id})
	case c.step == asking:
		c.step = whole
	}
	c.settled, c.released = true, true
	s.settle(c)
}

// drop ends a completion's fetch after a crash: its connections are gone too.
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
