package modelserver

import (
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// content is what one completion says. Tokens are a function of the run's
// seed, the request's id and the token's number, so nothing of a long output
// is kept, and the same run says the same things.
type content struct {
	voc      *tokens.Vocabulary
	base     uint64  // what its random words are drawn from
	given    []piece // what to say, in order, where words are not drawn
	once     bool    // and nothing behind it; else it begins anew
	stopAt   int     // tokens after which a stop ends the output; 0: none
	total    int     // tokens of the whole output, however it ends
	stopping stopping
	before   string    // the prompt, where it is echoed
	silent   bool      // nothing but the prompt is told
	prompt   []piece   // the prompt, where its likelihoods are told
	tool     *toolCall // what it calls instead of saying something
}

// piece is one token of a given text.
type piece struct {
	id   uint32
	text string
}

// piece is token number i.
func (c *content) piece(i int) piece {
	if n := len(c.given); n > 0 {
		if c.once && i >= n {
			return piece{}
		}
		return c.given[i%n]
	}
	id, word := c.voc.Pick(c.base, i)
	if i < c.stopping.masked {
		id, word = c.allowed(i, id, word)
	}
	return piece{id, word}
}

// text is the text of token number i as the client sees it.
func (c *content) text(i int) string {
	if i == 0 && c.before != "" {
		if c.silent {
			return c.before
		}
		return c.before + c.own(0)
	}
	return c.own(i)
}

func (c *content) fill(t *Token) {
	p := c.piece(t.Index)
	t.of, t.ID, t.Text = c, p.id, c.text(t.Index)
	c.tellStop(t)
}

// stopReason is the finish reason of an output that ended by itself.
func (c *content) stopReason() openai.FinishReason {
	if c.tool != nil && !c.tool.named {
		return openai.FinishToolCalls
	}
	return openai.FinishStop
}

// Content is what a server says.
type Content string

// The contents.
const (
	ContentRandom Content = "random" // words drawn by the request's id
	ContentEcho   Content = "echo"   // the prompt, or the last message of a chat, again
)
