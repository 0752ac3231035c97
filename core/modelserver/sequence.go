package modelserver

import (
	"encoding/binary"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Sequence is one completion of a request, as the engine has it and as the
// Response looks at it. The driver sets Owner before it submits it.
type Sequence struct {
	enginecore.Sequence
	// Choice is its number in the request.
	Choice int
	// Start, First and Every tell at what the Response has something to do: when
	// the engine begins the prompt, at the first token, at each.
	Start, First, Every bool

	prompt *Prompt
	said   *content
}

// Wants reports whether the Response has something to do at an effect of this kind. A driver that tells it each time
// what the time is need not ask.
func (q *Sequence) Wants(kind engine.Kind) bool {
	switch kind {
	case engine.PrefillStarted:
		return q.Start
	case engine.FirstToken:
		return q.First
	case engine.Tokens:
		return q.Every
	}
	return true
}

// ids are the prompt's tokens.
func (r *Reader) ids(p *Prompt) []uint32 {
	if p.Tokens == nil && p.of != nil {
		p.Tokens = r.tokenize(string(p.of.AppendPrompt(nil, &r.Template, true)))
	}
	return p.Tokens
}

// ids are some of its token ids: the prompt's and then its own.
func (q *Sequence) ids(r *Reader, first, count int) []uint32 {
	out := make([]uint32, 0, count)
	prompt := r.ids(q.prompt)
	for i := first; i < first+count; i++ {
		if i < len(prompt) {
			out = append(out, prompt[i])
		} else {
			out = append(out, q.said.piece(i-len(prompt)).id)
		}
	}
	return out
}

// wordsFor keys the words that follow a prompt by the prompt, its media, the adapter and a request's seed.
func (r *Reader) wordsFor(q *Request, p *Prompt, seed uint64) string {
	key := make([]byte, 0, 4*p.Len()+len(q.LoRA))
	for _, id := range r.ids(p) {
		key = binary.LittleEndian.AppendUint32(key, id)
	}
	for i := range q.Media {
		key = append(key, q.Media[i].Hash...)
	}
	d := machine.DrawFor(seed, "server", "words", string(append(key, q.LoRA...)))
	return d.Letters(24)
}

// fillSequence sets what a sequence says, and what the engine is asked for. The error
// says that this is too much.
func (r *Reader) fillSequence(q *Request, s *Sequence) *openai.Error {
	r.say(s.said, q, s.Choice)
	r.submit(&s.Submit, q, s.Choice, s.said)
	switch {
	case s.Every:
		s.Submit.Interest = engine.EveryToken
	case !s.First:
		s.Submit.Interest = engine.EndOnly
	}
	s.Counted = stats.Sequence{PromptTokens: s.Submit.PromptTokens, EveryToken: s.Every, N: q.N, MaxTokens: q.MaxTokens,
		Adapter: q.LoRA}
	s.Key, s.Remote, s.Source = q.KV.Key, q.KV.Remote, q.KV.Source
	size := r.Engine.BlockSize
	if blocks := s.Submit.PromptTokens / max(1, size); s.Remote == nil && (s.Source != nil || r.Connector.ViaStore) &&
		len(s.Submit.Hashes) < blocks {
		s.Prefix, _ = r.promptHashes(q, s.prompt, blocks, 0)
	}
	if r.Engine.KVEvents {
		s.Tokens = func(first, count int) []uint32 { return s.ids(r, first, count) }
	}
	return q.work.tooMuch()
}

// say sets what choice number i of a request will say.
func (r *Reader) say(c *content, q *Request, i int) {
	p := &q.Prompts[i/q.N]
	*c = content{}
	c.voc, c.base = r.Vocabulary, tokens.Answer(r.Seed, q.wordsOf(i))
	limit := q.MaxTokens
	if limit == 0 {
		limit = r.Engine.MaxModelLen - p.Len()
	}
	if q.KV.Keep && q.MaxTokens == 0 {
		limit = 1 // a prefill alone
	}
	if c.tool = r.callOf(c, q, i, limit); c.tool != nil {
		c.stopAt = len(c.given)
		c.total = min(limit, c.stopAt)
		q.work.spend(q.tokenBytes * c.total)
		return
	}
	switch {
	case q.form != nil:
		r.write(c, q, q.form, &structured.Text{
			Draw: machine.DrawFor(r.Seed, "server", "structured", q.wordsOf(i)), Free: true,
			Options: structured.Options{MinItems: 1, MaxItems: 3}, Target: r.State.Draws().Tokens(q.wordsOf(i))},
			limit)
	case r.Content == ContentEcho:
		if q.work.spend(pieceWork * len(q.echoText)) {
			c.given = r.piecesOf(q.echoText)
		}
	case len(r.Dataset) > 0:
		d := machine.DrawFor(r.Seed, "server", "dataset", q.wordsOf(i))
		c.given = r.piecesOf(r.Dataset[d.Intn(len(r.Dataset))])
	}
	if q.echo {
		if c.before, c.silent = p.Text, q.silent; c.before == "" && q.work.spend(tokenWork*len(p.Tokens)) {
			c.before = tokens.Decode(r.Tokenizer, p.Tokens)
		}
	}
	if q.promptTop != nil && q.work.spend((tokenWork+logprobWork*(1+*q.promptTop))*len(p.Tokens)) {
		c.prompt = r.pieces(p.Tokens)
	}
	if !q.IgnoreEOS {
		r.stopByItself(c, q, i)
	}
	if c.stopAt > 0 {
		limit = min(limit, c.stopAt)
	}
	if q.work.spend(stopWork * limit * (len(q.stops) + (len(q.stopIDs)+15)/16)) {
		c.findStop(q, limit)
	}
	if c.total = limit; c.stopAt > 0 {
		c.total = min(limit, c.stopAt)
	}
	// Of each token as much text is made again as is held back.
	q.work.spend(c.total * (q.tokenBytes + c.stopping.back))
}

// stopByItself sets where the model would end its output.
func (r *Reader) stopByItself(c *content, q *Request, i int) {
	c.stopAt = len(c.given)
	if c.stopAt == 0 {
		c.stopAt = r.State.Draws().Tokens(q.wordsOf(i))
	}
	if c.stopAt == 0 && q.MaxTokens == 0 {
		c.stopAt = DefaultOutput
	}
	if c.stopAt > 0 {
		c.stopAt = max(c.stopAt, q.MinTokens)
	}
	if q.MaxTokens > 0 && c.stopAt >= q.MaxTokens {
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

// submit makes m what the engine is asked for with choice number i: field by field,
// so that no copy of it stands on the stack.
func (r *Reader) submit(m *engine.Submit, q *Request, i int, c *content) {
	p := &q.Prompts[i/q.N]
	*m = engine.Submit{}
	m.ID = requestID(q.Key, i)
	m.PromptTokens = p.Len()
	m.MaxTokens = q.MaxTokens
	m.StopAfter = c.stopAt
	m.Priority = int32(max(min(q.Priority, 1<<31-1), -1<<31))
	m.Adapter = q.Adapter
	m.HoldKV = q.KV.Keep
	m.SkipReadingCache = q.promptTop != nil
	if r.Engine.Batching == engine.BatchingIndependent {
		d := r.State.Draws()
		m.PrefillTime, m.TokenTime = d.PrefillTime(q.Key), d.InterTokenTime(q.Key)
	} else if !r.Engine.DisablePrefixCaching && q.work.spend(8*(p.Len()+c.total)/r.Engine.BlockSize) {
		m.Hashes = r.hashes(q, p, c)
	}
}

// hashes names the blocks of a prompt and of what will be said behind it, so
// that a later turn of the same conversation finds both in the cache.
func (r *Reader) hashes(q *Request, p *Prompt, c *content) []uint64 {
	out, size := q.MaxTokens, r.Engine.BlockSize
	if c.stopAt > 0 && (out == 0 || c.stopAt < out) {
		out = c.stopAt
	}
	n := p.Len()
	if r.OwnNames && p.of != nil && q.Choices() == 1 {
		rule := r.rule(q)
		if list, ok := p.of.SharedNames(nil, &rule); ok {
			return list
		}
	}
	total := min(n+out, r.Engine.MaxModelLen)
	list, ids := r.promptHashes(q, p, total/size, total)
	if total/size == len(list) {
		return list
	}
	left := total - len(list)*size
	for i := range left - len(ids) {
		ids = append(ids, c.piece(i).id)
	}
	parent := q.salt()
	if len(list) > 0 {
		parent = list[len(list)-1]
	}
	return engine.BlockHashes(list, parent, ids, size)
}

// promptHashes names the whole blocks of a prompt, in a list with room for so many,
// and tells the tokens behind them, in one with room for what is up to total.
func (r *Reader) promptHashes(q *Request, p *Prompt, room, total int) (list []uint64, rest []uint32) {
	list = make([]uint64, 0, room)
	size := r.Engine.BlockSize
	if p.of == nil {
		list = engine.BlockHashes(list, q.salt(), p.Tokens, size)
		rest = make([]uint32, 0, max(0, total-len(list)*size))
		return list, append(rest, p.Tokens[len(list)*size:]...)
	}
	rule := r.rule(q)
	list, bytes := p.of.Names(list, &rule)
	rest = make([]uint32, 0, max(0, total-len(list)*size))
	for ; len(bytes) > 0; bytes = bytes[min(4, len(bytes)):] {
		rest = tokens.Packed{}.Encode(rest, string(bytes[:min(4, len(bytes))]))
	}
	return list, rest
}

// rule is how the blocks of a described prompt are named.
func (r *Reader) rule(q *Request) described.Rule {
	return described.Rule{Namer: engine.PackedBlocks{}, Seed: q.salt(), Unit: 4 * r.Engine.BlockSize,
		Template: r.Template, Answer: true, Own: r.OwnNames}
}

// salt keeps prefixes apart that must not be shared: between adapters, and
// between tenants with a cache_salt.
func (r *Request) salt() uint64 {
	if r.Salt == "" && r.Adapter == 0 {
		return 0
	}
	d := machine.DrawFor(uint64(r.Adapter), "server", "salt", r.Salt)
	return d.Uint64()
}

// requestID is the engine's name for a completion. It is made of the request's id
// and nothing else, so that the same requests draw the same values whatever order
// they come in.
func requestID(key string, choice int) engine.RequestID {
	d := machine.DrawFor(uint64(choice), "server", "request", key)
	return engine.RequestID(d.Uint64())
}
