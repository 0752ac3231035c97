package modelserver

import (
	"math"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Logprobs generates log probabilities for an output's tokens: of the chosen token, and of alternatives in decreasing
// order.
type Logprobs struct {
	Top     int   // alternatives to each token
	offsets []int // completions: the offset of each choice's next token in its text
}

// Likely is one candidate for a token, with its log probability.
type Likely struct {
	ID      uint32
	Text    string
	Logprob float64
}

// Of returns the candidates at one token, with the token itself first.
func (l *Logprobs) Of(t *Token) []Likely {
	return t.of.likely(machine.NewDraw(t.of.base, "content", "logprob", uint64(t.Index)), t.of.piece(t.Index), l.Top)
}

// likely returns a token and its alternatives. The text of the token itself as the client sees it may be shorter than
// the token's, if a part is held back, or longer.
func (c *content) likely(d machine.Draw, own piece, top int) []Likely {
	p := 0.3 + 0.69*d.Float64()
	out := []Likely{{own.id, own.text, round(math.Log(p))}}
	rest := 1 - p
	for range top - 1 {
		p = rest * (0.4 + 0.4*d.Float64())
		rest -= p
		w := d.Intn(c.voc.Len())
		id, word := c.voc.Word(w)
		out = append(out, Likely{id, word, round(math.Log(p))})
	}
	return out
}

// ofPrompt returns the candidates at token number i of the prompt. They are nil for the first token, which has no
// context.
func (c *content) ofPrompt(i, top int) []Likely {
	if i == 0 {
		return nil
	}
	// The same token is always followed by the same values, in every request.
	d := machine.NewDraw(0, "content", "prompt logprob", uint64(c.prompt[i-1].id)<<32|uint64(c.prompt[i].id))
	return c.likely(d, c.prompt[i], top)
}

// appendPrompt appends the list that prompt_logprobs asks for: the candidates at each token of the prompt, by token id.
func (c *content) appendPrompt(b []byte, top int) []byte {
	b = append(b, '[')
	for i := range c.prompt {
		if i == 0 {
			b = append(b, "null"...)
			continue
		}
		b = append(b, ",{"...)
		seen := map[uint32]bool{}
		all := c.ofPrompt(i, top)
		for _, x := range all {
			if seen[x.ID] {
				continue
			}
			if len(seen) > 0 {
				b = append(b, ',')
			}
			seen[x.ID] = true
			rank := 1
			for _, y := range all {
				if y.Logprob > x.Logprob {
					rank++
				}
			}
			b = openai.Fill(b, `"$":{"logprob":$,"rank":$,"decoded_token":$}`, x.ID, x.Logprob, rank, x.Text)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func round(v float64) float64 { return math.Round(v*1e6) / 1e6 }

// appendChat appends one element of a chat's logprobs.content.
func (l *Logprobs) appendChat(b []byte, t *Token) []byte {
	all := l.Of(t)
	b = appendLikely(b, all[0])
	b = append(b, `,"top_logprobs":[`...)
	for i, x := range all {
		if i >= l.Top {
			break
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLikely(b, x)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

func appendLikely(b []byte, x Likely) []byte {
	b = openai.Fill(b, `{"token":$,"logprob":$,"bytes":[`, x.Text, x.Logprob)
	for i := range len(x.Text) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(x.Text[i]), 10)
	}
	return append(b, ']')
}

// completionLogprobs collects the four parallel lists of a completion.
type completionLogprobs struct{ offsets, logprobs, tokens, tops []byte }

// add adds a token. With echo, it first adds the prompt's tokens before the first token of the answer.
func (o *completionLogprobs) add(l *Logprobs, t *Token) {
	for len(l.offsets) <= t.Choice {
		l.offsets = append(l.offsets, 0)
	}
	at := &l.offsets[t.Choice]
	if t.Index == 0 && t.of.before != "" {
		for i, p := range t.of.prompt {
			o.one(at, p.text, t.of.ofPrompt(i, l.Top), l.Top)
		}
		if t.of.silent {
			return
		}
	}
	all := l.Of(t)
	o.one(at, all[0].Text, all, l.Top)
}

// one adds a token that begins at an offset of the text, and moves the offset to the token's end.
func (o *completionLogprobs) one(at *int, text string, all []Likely, top int) {
	comma := func(b []byte) []byte {
		if len(b) > 0 {
			return append(b, ',')
		}
		return b
	}
	o.offsets = strconv.AppendInt(comma(o.offsets), int64(*at), 10)
	*at += len(text)
	o.tokens = openai.AppendString(comma(o.tokens), text)
	if all == nil {
		o.logprobs, o.tops = append(comma(o.logprobs), "null"...), append(comma(o.tops), "null"...)
		return
	}
	o.logprobs = strconv.AppendFloat(comma(o.logprobs), all[0].Logprob, 'g', -1, 64)
	o.tops = append(comma(o.tops), '{')
	seen := map[string]bool{}
	for i, x := range all {
		if seen[x.Text] || i > 0 && i >= top {
			continue
		}
		if len(seen) > 0 {
			o.tops = append(o.tops, ',')
		}
		seen[x.Text] = true
		o.tops = openai.Fill(o.tops, "$:$", x.Text, x.Logprob)
	}
	o.tops = append(o.tops, '}')
}

func (o *completionLogprobs) append(b []byte) []byte {
	list := func(elements []byte) []byte { return append(elements, ']') }
	return openai.Fill(b, `{"text_offset":[$,"token_logprobs":[$,"tokens":[$,"top_logprobs":[$}`, list(o.offsets),
		list(o.logprobs), list(o.tokens), list(o.tops))
}
