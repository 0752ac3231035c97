package modelserver

import (
	"math"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
)

// Logprobs makes up the log probabilities of an output's tokens: that of the
// token said, and of others that might have been said, less likely each.
type Logprobs struct {
	Top     int   // alternatives per token
	offsets []int // completions: where each choice's next token begins in its text
}

// Likely is one of the tokens that might have been said.
type Likely struct {
	ID      uint32
	Text    string
	Logprob float64
}

// Of is the likelihoods at one token, the token itself first.
func (l *Logprobs) Of(t *Token) []Likely {
	c := t.of
	d := machine.NewDraw(c.base, "content", "logprob", uint64(t.Index))
	p := 0.3 + 0.69*d.Float64()
	own := c.piece(t.Index).text // what the client sees of it may be held back, or more
	out := []Likely{{t.ID, own, round(math.Log(p))}}
	rest := 1 - p
	for range l.Top - 1 {
		p = rest * (0.4 + 0.4*d.Float64())
		rest -= p
		w := d.Intn(c.voc.Len())
		id, word := c.voc.Word(w)
		out = append(out, Likely{id, word, round(math.Log(p))})
	}
	return out
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
	b = append(b, `{"token":`...)
	b = openai.AppendString(b, x.Text)
	b = append(b, `,"logprob":`...)
	b = strconv.AppendFloat(b, x.Logprob, 'g', -1, 64)
	b = append(b, `,"bytes":[`...)
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

func (o *completionLogprobs) add(l *Logprobs, t *Token) {
	all := l.Of(t)
	comma := func(b []byte) []byte {
		if len(b) > 0 {
			return append(b, ',')
		}
		return b
	}
	for len(l.offsets) <= t.Choice {
		l.offsets = append(l.offsets, 0)
	}
	o.offsets = strconv.AppendInt(comma(o.offsets), int64(l.offsets[t.Choice]), 10)
	o.logprobs = strconv.AppendFloat(comma(o.logprobs), all[0].Logprob, 'g', -1, 64)
	o.tokens = openai.AppendString(comma(o.tokens), all[0].Text)
	o.tops = append(comma(o.tops), '{')
	seen := map[string]bool{}
	for i, x := range all {
		if seen[x.Text] || i > 0 && i >= l.Top {
			continue
		}
		if len(seen) > 0 {
			o.tops = append(o.tops, ',')
		}
		seen[x.Text] = true
		o.tops = openai.AppendString(o.tops, x.Text)
		o.tops = append(o.tops, ':')
		o.tops = strconv.AppendFloat(o.tops, x.Logprob, 'g', -1, 64)
	}
	o.tops = append(o.tops, '}')
	l.offsets[t.Choice] += len(all[0].Text)
}

func (o *completionLogprobs) append(b []byte) []byte {
	b = append(b, `{"text_offset":[`...)
	b = append(b, o.offsets...)
	b = append(b, `],"token_logprobs":[`...)
	b = append(b, o.logprobs...)
	b = append(b, `],"tokens":[`...)
	b = append(b, o.tokens...)
	b = append(b, `],"top_logprobs":[`...)
	b = append(b, o.tops...)
	return append(b, "]}"...)
}
