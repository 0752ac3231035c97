package modelserver

import (
	"cmp"
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

// Sequence is one completion of a request. The engine and the Response share it. The driver sets Owner before it
// submits the Sequence.
type Sequence struct {
	enginecore.Sequence
	// Choice is the index of the completion in the request.
	Choice int
	// Start, First and Every name the events that the Response waits for: the beginning of the prompt, the first token,
	// and each token.
	Start, First, Every bool

	prompt *Prompt
	said   *content
}

// Wants reports whether the Response needs an effect of this kind. A driver that gives the Response every effect need
// not call it.
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

// ids returns the tokens of the prompt.
func (r *Reader) ids(p *Prompt) []uint32 {
	if p.Tokens == nil && p.of != nil {
		p.Tokens = r.tokenize(string(p.of.AppendPrompt(nil, &r.Template, true)))
	}
	return p.Tokens
}

// ids returns a range of the completion's token ids: those of the prompt and then those of the output.
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

// wordsFor returns the key of the words after a prompt. It depends on the prompt, its media, the adapter and the
// request's seed.
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

// fillSequence sets the content of a sequence and its submission to the engine. It returns an error if that takes too
// much work.
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

// say sets the content of choice number i of a request.
func (r *Reader) say(c *content, q *Request, i int) {
	p := &q.Prompts[i/q.N]
	*c = content{}
	c.voc, c.base = r.Vocabulary, tokens.Answer(r.Seed, q.wordsOf(i))
	limit := q.MaxTokens
	limit = cmp.Or(limit, r.Engine.MaxModelLen-p.Len())
	if q.KV.Keep && q.MaxTokens == 0 {
		limit = 1 // a prefill without decode
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
	// For each token, the server generates again as much text as it holds back.
	q.work.spend(c.total * (q.tokenBytes + c.stopping.back))
}

// stopByItself sets the token after which the model ends its output.
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
		c.stopAt = 0 // the output reaches the limit first
	}
}

// keyOf returns the key of the draws of one choice of a request. The key of the first choice is the request's id alone.
func keyOf(request string, choice int) string {
	if choice == 0 {
		return request
	}
	return request + "/" + strconv.Itoa(choice)
}

// submit sets m to the submission of choice number i. It sets single fields, so that no copy takes space on the stack.
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

// hashes returns the names of the blocks of a prompt and of its answer, so that a later turn of the same conversation
// finds both in the cache.
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

// promptHashes returns the names of the full blocks of a prompt, in a slice with capacity for room names, and the
// tokens after them, in a slice with capacity for the rest of total tokens.
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

// rule returns the rule by which blocks of a described prompt are named.
func (r *Reader) rule(q *Request) described.Rule {
	return described.Rule{Namer: engine.PackedBlocks{}, Seed: q.salt(), Unit: 4 * r.Engine.BlockSize,
		Template: r.Template, Answer: true, Own: r.OwnNames}
}

// salt separates prefixes that requests must not share: those of different adapters, and of tenants with different
// cache_salts.
func (r *Request) salt() uint64 {
	if r.Salt == "" && r.Adapter == 0 {
		return 0
	}
	d := machine.DrawFor(uint64(r.Adapter), "server", "salt", r.Salt)
	return d.Uint64()
}

// requestID returns the engine's id of a completion. It depends on the request's id alone, so that requests draw the
// same values in whatever order they arrive.
func requestID(key string, choice int) engine.RequestID {
	d := machine.DrawFor(uint64(choice), "server", "request", key)
	return engine.RequestID(d.Uint64())
}
