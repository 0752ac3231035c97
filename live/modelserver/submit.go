package modelserver

import (
	"math/rand/v2"
	"strconv"

	"encoding/binary"
	"encoding/hex"
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// content is what choice number i of a request will say.
func (s *Server) content(r *request, i int) *content {
	c := new(content)
	s.say(c, r, i)
	return c
}

// say sets what choice number i of a request will say.
func (s *Server) say(c *content, r *request, i int) {
	*c = content{voc: s.voc, base: tokens.Answer(s.seed^r.seed, keyOf(r.key, i))}
	limit := r.maxTokens
	if limit == 0 {
		limit = s.cfg.MaxModelLen - len(r.prompts[i/r.n].tokens)
	}
	if r.kv.remoteDecode && r.maxTokens == 0 {
		limit = 1 // a prefill alone
	}
	if c.tool = s.callOf(r, i, limit); c.tool != nil {
		c.stopAt = len(c.tool.pieces)
		c.total = min(limit, c.stopAt)
		r.work.spend(r.tokenBytes * c.total)
		return
	}
	switch {
	case s.opts.Content == ContentEcho:
		if r.work.spend(pieceWork * len(r.echoText)) {
			c.echo = s.piecesOf(r.echoText)
		}
	case len(s.opts.Dataset) > 0:
		d := machine.DrawFor(s.seed^r.seed, "server", "dataset", keyOf(r.key, i))
		c.echo = s.piecesOf(s.opts.Dataset[d.Intn(len(s.opts.Dataset))])
	}
	if r.echo {
		p := &r.prompts[i/r.n]
		if c.before, c.silent = p.text, r.silent; c.before == "" && r.work.spend(tokenWork*len(p.tokens)) {
			c.before = tokens.Decode(s.tokenizer, p.tokens)
		}
	}
	if !r.ignoreEOS {
		s.stopByItself(c, r, i)
	}
	if c.stopAt > 0 {
		limit = min(limit, c.stopAt)
	}
	if r.work.spend(stopWork * limit * (len(r.stops) + (len(r.stopIDs)+15)/16)) {
		c.findStop(r, limit)
	}
	if c.total = limit; c.stopAt > 0 {
		c.total = min(limit, c.stopAt)
	}
	// Of each token as much text is made again as is held back.
	r.work.spend(c.total * (r.tokenBytes + c.stopping.back))
}

// stopByItself sets where the model would end its output.
func (s *Server) stopByItself(c *content, r *request, i int) {
	switch {
	case len(c.echo) > 0:
		c.stopAt = len(c.echo)
	case s.opts.OutputTokens != nil:
		c.stopAt = s.draws.Load().Tokens(keyOf(r.key, i), 0)
	case r.maxTokens == 0:
		c.stopAt = DefaultOutput
	}
	if c.stopAt > 0 {
		c.stopAt = max(c.stopAt, r.minTokens)
	}
	if r.maxTokens > 0 && c.stopAt >= r.maxTokens {
		c.stopAt = 0 // the limit is reached first
	}
}

// keyOf keys the draws of one choice of a request: the first is keyed by the
// request's id alone.
func keyOf(request string, choice int) string {
	if choice == 0 {
		return request
	}
	return request + "/" + strconv.Itoa(choice)
}

func (s *Server) submitFor(r *request, p *prompt, i int, c *content) engine.Submit {
	m := engine.Submit{
		ID:           requestKey(r.key, i),
		PromptTokens: len(p.tokens),
		MaxTokens:    r.maxTokens,
		StopAfter:    c.stopAt,
		Priority:     int32(max(min(r.priority, 1<<31-1), -1<<31)),
		Adapter:      r.adapter,
		HoldKV:       r.kv.remoteDecode,
	}
	if s.cfg.Batching == engine.BatchingIndependent {
		if s.opts.Prefill != nil || s.ownTimes.Load() {
			m.PrefillTime = s.draws.Load().PrefillTime(r.key)
		}
		if s.opts.TokenTime != nil || s.ownTimes.Load() {
			m.TokenTime = s.draws.Load().InterTokenTime(r.key)
		}
	}
	if !s.cfg.DisablePrefixCaching && s.cfg.Batching != engine.BatchingIndependent && r.work.spend(8*(len(p.tokens)+c.total)/s.cfg.BlockSize) {
		m.Hashes = s.hashes(r, p, c)
	}
	return m
}

// prefix names the blocks of a prompt that is looked for elsewhere, where what
// the engine is told does not name them.
func (s *Server) prefix(r *request, q *seq) []uint64 {
	blocks := q.Submit.PromptTokens / s.cfg.BlockSize
	if q.Source == nil && !s.connector().ViaStore || q.Remote != nil || len(q.Submit.Hashes) >= blocks {
		return nil
	}
	return engine.BlockHashes(make([]uint64, 0, blocks), saltOf(r), r.prompts[q.choice/r.n].tokens, s.cfg.BlockSize)
}

// hashes names the blocks of a prompt and of what will be said behind it, so
// that a later turn of the same conversation finds both in the cache.
func (s *Server) hashes(r *request, p *prompt, c *content) []uint64 {
	out := r.maxTokens
	if c.stopAt > 0 && (out == 0 || c.stopAt < out) {
		out = c.stopAt
	}
	n := len(p.tokens)
	total := min(n+out, s.cfg.MaxModelLen)
	list := engine.BlockHashes(make([]uint64, 0, total/s.cfg.BlockSize), saltOf(r), p.tokens, s.cfg.BlockSize)
	if total/s.cfg.BlockSize == len(list) {
		return list
	}
	whole := len(list) * s.cfg.BlockSize
	parent := saltOf(r)
	if len(list) > 0 {
		parent = list[len(list)-1]
	}
	return engine.BlockHashes(list, parent, tokensOf(p, c)(whole, total-whole), s.cfg.BlockSize)
}

// tokensOf is a completion's token ids by number: the prompt's and then its
// own.
func tokensOf(p *prompt, c *content) func(first, count int) []uint32 {
	return func(first, count int) []uint32 {
		out := make([]uint32, 0, count)
		for i := first; i < first+count; i++ {
			if i < len(p.tokens) {
				out = append(out, p.tokens[i])
			} else {
				out = append(out, c.piece(i-len(p.tokens)).id)
			}
		}
		return out
	}
}

// saltOf keeps prefixes apart that must not be shared: between adapters, and
// between tenants with a cache_salt.
func saltOf(r *request) uint64 {
	if r.salt == "" && r.adapter == 0 {
		return 0
	}
	d := machine.DrawFor(uint64(r.adapter), "server", "salt", r.salt)
	return d.Uint64()
}

// requestKey is the engine's name for a completion. It is made of the
// request's id and nothing else, so that the same requests draw the same
// values whatever order they come in.
func requestKey(id string, choice int) engine.RequestID {
	d := machine.DrawFor(uint64(choice), "server", "request", id)
	return engine.RequestID(d.Uint64())
}

// newID is a fresh request id for a client that brought none.
func (s *Server) newID() string {
	var b [16]byte // an id need not be secret
	binary.LittleEndian.PutUint64(b[:], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	return hex.EncodeToString(b[:])
}
