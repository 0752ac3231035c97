package modelserver

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// content is what one completion says. Tokens are a function of the run's
// seed, the request's id and the token's number, so nothing of a long output
// is kept, and the same run says the same things.
type content struct {
	voc      *tokens.Vocabulary
	base     uint64  // what its random words are drawn from
	echo     []piece // echo mode and datasets: what to say, in order
	stopAt   int     // tokens after which a stop ends the output; 0: none
	stop     string  // the stop string met there
	stopID   int
	keepStop bool
	before   string    // the prompt, where it is echoed
	silent   bool      // nothing but the prompt is told
	tool     *toolCall // what it calls instead of saying something
	cut      int       // bytes of the last token that stand before the stop string
}

// piece is one token of a given text.
type piece struct {
	id   uint32
	text string
}

// piece is token number i.
func (c *content) piece(i int) piece {
	if c.tool != nil {
		return c.tool.pieces[min(i, len(c.tool.pieces)-1)]
	}
	if len(c.echo) > 0 {
		return c.echo[i%len(c.echo)]
	}
	id, word := c.voc.Pick(c.base, i)
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

// own is the token's own text.
func (c *content) own(i int) string {
	p := c.piece(i)
	if c.stopAt > 0 && i == c.stopAt-1 {
		if c.stop != "" && !c.keepStop {
			return p.text[:min(c.cut, len(p.text))]
		}
	}
	return p.text
}

func (c *content) fill(t *token) {
	p := c.piece(t.index)
	t.of, t.id, t.text = c, p.id, c.text(t.index)
	if t.done == openai.FinishStop {
		t.stop, t.stopID = c.stop, c.stopID
	}
}

// stopReason is the finish reason of an output that ended by itself.
func (c *content) stopReason() openai.FinishReason {
	if c.tool != nil && !c.tool.named {
		return openai.FinishToolCalls
	}
	return openai.FinishStop
}

// findStop sets stopAt at the first stop string within limit tokens. The part
// of the output before the string stays as it is told: a stop string that
// begins in an earlier token leaves that token's beginning visible, as a
// streaming server cannot take it back.
func (c *content) findStop(stops []string, minTokens, limit int) {
	if len(stops) == 0 {
		return
	}
	longest := 0
	for _, s := range stops {
		longest = max(longest, len(s))
	}
	tail := ""
	for i := range limit {
		p := c.piece(i)
		window := tail + p.text
		if i+1 >= minTokens {
			for _, s := range stops {
				if at := strings.Index(window, s); at >= 0 && at+len(s) > len(tail) {
					c.stopAt, c.stop = i+1, s
					c.cut = max(0, at-len(tail))
					return
				}
			}
		}
		tail = window[max(0, len(window)-longest+1):]
	}
}

// Content is what a server says.
type Content string

// The contents.
const (
	ContentRandom Content = "random" // words drawn by the request's id
	ContentEcho   Content = "echo"   // the prompt, or the last message of a chat, again
)
