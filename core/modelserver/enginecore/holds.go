package enginecore

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// inquiry is the state of a server that asks this one.
type inquiry struct {
	number Inquiry
	hold   *Hold  // the cache that the server asked for and has not given back
	key    string // the key of the cache that the server waits for
	timer  machine.Handle
}

// hold keeps a cache for other servers, and answers those that wait for it.
func (s *Core) hold(f *engine.Effect, q *Sequence) {
	h := &Hold{handle: f.Handle,
		Blocks: connector.Blocks{First: (s.block + 1) % connector.BlockNumbers, Count: max(1, int(f.Count))}}
	s.block = (s.block + h.Blocks.Count) % connector.BlockNumbers
	s.holds[h.handle], s.byBlock[h.Blocks.First] = h, h
	if q == nil {
		return
	}
	q.Hold, h.Tokens = h, q.Submit.PromptTokens
	if q.Key == "" || s.named[q.Key] != nil { // the first of several completions
		return
	}
	h.key, s.named[q.Key] = q.Key, h
	for _, i := range s.waiting[q.Key] {
		i.key, i.hold = "", h
		s.timers.Remove(&i.timer)
		s.do(nil, Answer{i.number, Reply{Tokens: h.Tokens, EngineID: s.c.EngineID}, false})
	}
	delete(s.waiting, q.Key)
}

// freed forgets a cache that was given back, or that no server fetched in time.
func (s *Core) freed(f *engine.Effect) {
	h := s.holds[f.Handle]
	if h == nil {
		return
	}
	delete(s.holds, f.Handle)
	delete(s.byBlock, h.Blocks.First)
	if h.key != "" {
		delete(s.named, h.key)
	}
}

// asked answers a question, or makes the asker wait. It waits for a cache that is still to be computed for as long as
// the server would keep a computed one.
func (s *Core) asked(number Inquiry, q *Question) {
	i := s.inquiries[number]
	if i == nil {
		i = &inquiry{number: number}
	}
	a := Reply{EngineID: s.c.EngineID}
	last := false
	switch {
	case i.key != "":
		s.unwait(i)
		a.Err = fmt.Sprintf("unexpected %q; expected nothing while this one waits", q.Op)
	case len(q.Key) > MaxKey:
		a.Err = fmt.Sprintf("a key of %d bytes; expected at most %d", len(q.Key), MaxKey)
	case q.Op == OpHello:
		last = true
	case q.Op == OpFind:
		last, a.Tokens = true, s.eng.CachedPrefix(q.Hashes)*s.cfg.BlockSize
	case q.Op == OpRelease && i.hold != nil:
		if last = true; s.holds[i.hold.handle] == i.hold {
			s.input(engine.KVReleased{Handle: i.hold.handle})
		}
	case q.Op != OpGet && q.Op != OpAwait:
		a.Err = fmt.Sprintf("unexpected %q; expected get, then release", q.Op)
	case q.EngineID != s.c.EngineID && (q.Op == OpGet || q.EngineID != ""):
		a.Err = fmt.Sprintf("this is engine %s and not %s", s.c.EngineID, q.EngineID)
	case q.Op == OpGet:
		if i.hold = s.byBlock[q.Blocks.First]; i.hold == nil || i.hold.Blocks != q.Blocks {
			a.Err = "these blocks are not held here: they were released, have expired, or never were"
		}
	case s.named[q.Key] == nil:
		a.Waiting, i.key = true, q.Key
		s.waiting[q.Key] = append(s.waiting[q.Key], i)
		s.after(s.cfg.KVHoldTimeout, &i.timer, timer{inquiry: i})
	default:
		i.hold = s.named[q.Key]
	}
	if a.Err == "" && i.hold != nil && !last {
		a.Tokens = i.hold.Tokens
	}
	s.answer(i, a, last || a.Err != "")
}

func (s *Core) answer(i *inquiry, a Reply, last bool) {
	if last {
		delete(s.inquiries, i.number)
	} else {
		s.inquiries[i.number] = i
	}
	s.do(nil, Answer{i.number, a, last})
}

// inVain ends a wait for a cache that the server has not computed.
func (s *Core) inVain(i *inquiry) {
	s.unwait(i)
	s.answer(i, Reply{Err: "nobody has prefilled this request here in time"}, true)
}

// left forgets a server that has hung up. The cache that it asked for is kept until its timeout, because another server
// may ask for it.
func (s *Core) left(number Inquiry) {
	if i := s.inquiries[number]; i != nil {
		s.unwait(i)
		delete(s.inquiries, number)
	}
}

func (s *Core) unwait(i *inquiry) {
	s.timers.Remove(&i.timer)
	if i.key == "" {
		return
	}
	list := slices.DeleteFunc(s.waiting[i.key], func(o *inquiry) bool { return o == i })
	if s.waiting[i.key] = list; len(list) == 0 {
		delete(s.waiting, i.key)
	}
	i.key = ""
}
