package modelserver

import (
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Append appends the bytes of an effect that sends something: BeginAnswer, Tokens, End, Refuse and Fail.
func (r *Response) Append(b []byte, e *Effect) []byte {
	switch e.Kind {
	case BeginAnswer:
		b = r.req.Encoder.Begin(b, r.usage)
		if !r.req.Stream {
			return r.appendTokens(b, 0, 1)
		}
		return r.appendNew(b)
	case Tokens:
		return r.appendNew(b)
	case End:
		var echo []byte
		if e.echoes {
			field := held.EchoField
			if _, ok := r.req.Encoder.(*responsesEncoder); ok {
				field = held.ResponsesEchoField
			}
			echo = openai.AppendString([]byte(`,"`+field+`":`), e.Echo)
		}
		return r.appendEnd(b, echo)
	case Refuse:
		return r.api.AppendError(b, e.Error)
	case Fail:
		return r.req.Encoder.Fail(b, e.Error)
	}
	return b
}

// Describe returns a description of the bytes that Append would write for an effect, for readers that do not need the
// bytes themselves. It returns false where a description would lose something. A Response that is described once is
// never written.
func (r *Response) Describe(e *Effect) (p described.Piece, ok bool) {
	switch e.Kind {
	case BeginAnswer:
		r.described = r.describable()
	case End:
		if r.described = r.described || (!r.began || !r.inPieces()) && r.describable(); r.described {
			p.Usage, p.Has = r.usage, true
			if s, streams := r.req.Encoder.(*openaiStream); streams {
				p.Has = s.includeUsage
			}
		}
	case Fail:
		p.Has = !r.req.Stream // a whole answer ends with an empty usage
	}
	return p, r.described
}

// describable reports whether a description of an answer contains everything that the answer does.
func (r *Response) describable() bool {
	return r.limit() < 0 && r.req.describable()
}

func (r *Request) describable() bool {
	switch e := r.Encoder.(type) {
	case nil:
		return !r.counted
	case *openaiStream:
		return !e.o.ContinuousUsage
	case *openaiWhole:
		return true
	}
	return false
}

// Said returns the part of the first choice's content that the client sees: as words where possible, else as a text.
func (r *Response) Said() (words described.Text, text string) {
	said, n := r.seqs[0].said, r.sendable(0)
	if words, ok := said.words(n); ok && !r.below {
		return words, ""
	}
	if r.below {
		n = 0
	}
	return words, said.visible(n)
}

// visible returns the text of the first n tokens as the client sees it.
func (c *content) visible(n int) (text string) {
	if c.tool != nil {
		return ""
	}
	for i := range n {
		text += c.text(i)
	}
	return text
}

// words returns the first n tokens that the client sees, if they are words.
func (c *content) words(n int) (words described.Text, ok bool) {
	if x := &c.stopping; len(c.given) > 0 || c.before != "" || x.masked > 0 || x.back > 0 || x.drop > 0 ||
		c.tool != nil {
		return words, false
	}
	return described.Words(c.voc, c.base, n), true
}

func (r *Response) appendEnd(b, echo []byte) []byte {
	enc := r.req.Encoder
	if !r.began || !r.inPieces() {
		b = enc.Begin(b, r.usage)
	}
	if r.below {
		b = enc.Token(b, &Token{None: true, of: r.seqs[0].said, Done: FinishCacheThreshold})
		return enc.End(b, r.usage, nil, nil)
	}
	for i := range r.seqs {
		b = r.appendChoice(b, i, r.sendable(i), true)
	}
	return enc.End(b, r.usage, r.reader.kvAnswer(r.req, r.p.Kept), echo)
}

// FinishCacheThreshold is the finish reason of a request if the cache holds a smaller part of its prompt than its
// cache_hit_threshold asks for.
const FinishCacheThreshold openai.FinishReason = "cache_threshold"

// appendNew encodes the tokens that the stream has not sent yet, one token of each choice in turn.
func (r *Response) appendNew(b []byte) []byte {
	for more := true; more; {
		more = false
		for i := range r.p.Choices {
			c, n := &r.p.Choices[i], r.sendable(i)
			// A finish that the client receives as an error ends no choice.
			ends := c.Finished && !c.Aborted && n == c.Tokens &&
				(c.Reason == engine.ReasonStop || c.Reason == engine.ReasonLength)
			switch {
			case n > r.sent[i]+1:
				b = r.appendTokens(b, i, r.sent[i]+1)
				more = true
			case n > r.sent[i] || ends && !r.close[i]:
				b = r.appendChoice(b, i, n, ends)
			}
		}
	}
	return b
}

func (r *Response) appendChoice(b []byte, i, tokens int, ends bool) []byte {
	switch {
	case r.close[i]:
	case ends && tokens > r.sent[i]:
		b = r.appendTokens(b, i, tokens-1)
		b = r.appendToken(b, i, tokens-1, r.reason(i))
		r.close[i] = true
	case ends:
		t := &Token{Choice: i, None: true, Index: tokens, Done: r.reason(i)}
		r.seqs[i].said.setStop(t)
		b = r.req.Encoder.Token(b, t)
		r.close[i] = true
	default:
		b = r.appendTokens(b, i, tokens)
	}
	return b
}

func (r *Response) appendTokens(b []byte, i, upTo int) []byte {
	said := r.seqs[i].said
	if r.silent && upTo > 1 { // no client reads it
		b = r.appendTokens(b, i, 1)
		r.sent[i] = max(r.sent[i], upTo)
		return b
	}
	if e, ok := r.req.Encoder.(*openaiWhole); ok && e.plain(said) {
		b = e.texts(b, said, i, r.sent[i], upTo)
		r.sent[i] = max(r.sent[i], upTo)
		return b
	}
	for r.sent[i] < upTo {
		b = r.appendToken(b, i, r.sent[i], "")
	}
	return b
}

func (r *Response) appendToken(b []byte, i, index int, done openai.FinishReason) []byte {
	t := &r.token // in place: an encoder may not keep its argument beyond the call
	*t = Token{Choice: i, Index: index, Done: done}
	if done != "" && i == 0 {
		t.kv = r.reader.kvMetadata(r.req, r.p.Kept)
	}
	r.seqs[i].said.fill(t)
	r.sent[i] = index + 1
	return r.req.Encoder.Token(b, t)
}
