package modelserver

import (
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// content is the output of one completion. Each token is a function of the run's seed, the request's id and the token's
// number. Long outputs therefore need no memory, and two runs with the same seed generate the same text.
type content struct {
	voc      *tokens.Vocabulary
	base     uint64  // seed of the random words
	given    []piece // tokens to generate, in order, in place of random words
	once     bool    // end after given; else repeat it
	stopAt   int     // number of tokens after which a stop ends the output; 0: none
	total    int     // tokens of the whole output, whatever ends it
	stopping stopping
	before   string    // the prompt, where it is echoed
	silent   bool      // the client sees only the prompt
	prompt   []piece   // the prompt, if the client asked for its log probabilities
	tool     *toolCall // the tool call that replaces the text
}

// piece is one token of a fixed text.
type piece struct {
	id   uint32
	text string
}

// piece returns token number i.
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

// text returns the text of token number i as the client sees it.
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
	c.setStop(t)
}

// stopReason returns the finish reason of an output that ended before its limit.
func (c *content) stopReason() openai.FinishReason {
	if c.tool != nil && !c.tool.named {
		return openai.FinishToolCalls
	}
	return openai.FinishStop
}

// Content selects what a server generates.
type Content string

// The values of Content.
const (
	ContentRandom Content = "random" // words drawn by the request's id
	ContentEcho   Content = "echo"   // repeats the prompt, or the last message of a chat
)
