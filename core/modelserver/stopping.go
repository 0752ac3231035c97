package modelserver

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// stopping is what may end a completion before its length does: stop strings
// and stop tokens, by vLLM's rules (vllm/v1/core/sched/utils.py and
// vllm/v1/engine/detokenizer.py). The text of a completion is known before it
// is said, so it is known from the start whether it meets any.
//
//   - A stop token ends the output; it counts as a token, and its text is told
//     only with include_stop_str_in_output. It cannot come among the first
//     min_tokens tokens: random content then says another word, as the model's
//     logits are masked.
//   - A stop string ends the output at the first token behind min_tokens that
//     completes one; of several, the first of the request's list counts. What
//     stands before it is told, and itself with include_stop_str_in_output.
//   - A stream is behind by as many characters as the longest stop string has,
//     less one, so that it never tells the beginning of one.
//   - ignore_eos is about the end of sequence alone.
type stopping struct {
	tokens []uint32 // stop_token_ids
	masked int      // the first so many tokens are none of them
	back   int      // characters that a stream holds back
	drop   int      // bytes at the output's end that are not told
	text   string   // the stop string met
	token  uint32   // the stop token met
	met    bool     // a token, and not a string, was met
}

// Limits of what may stop an output: each of its tokens is looked at for all of
// them.
const (
	maxStops     = 128
	maxStopBytes = 8192 // all strings together
	maxStopIDs   = 1024
)

func checkStops(p *openai.Sampling) *openai.Error {
	bytes := 0
	for _, s := range p.Stop {
		bytes += len(s)
	}
	switch {
	case len(p.Stop) > maxStops || bytes > maxStopBytes:
		return openai.Errorf(400, "stop", "stop: expected at most %d strings of %d bytes together, got %d of %d.",
			maxStops, maxStopBytes, len(p.Stop), bytes)
	case len(p.StopTokenIDs) > maxStopIDs:
		return openai.Errorf(400, "stop_token_ids", "stop_token_ids: expected at most %d, got %d.", maxStopIDs,
			len(p.StopTokenIDs))
	}
	return nil
}

// allowed is a word that is no stop token, in the place of one that may be.
func (c *content) allowed(i int, id uint32, word string) (uint32, string) {
	const tries = 64 // more than that and the whole vocabulary is forbidden
	for n := uint64(1); n < tries && slices.Contains(c.stopping.tokens, id); n++ {
		id, word = c.voc.Pick(c.base^n<<48, i)
	}
	return id, word
}

// findStop looks for what stops the output within limit tokens.
func (c *content) findStop(r *Request, limit int) {
	if len(r.stops) == 0 && len(r.stopIDs) == 0 {
		return
	}
	longest := 0
	for _, s := range r.stops {
		longest = max(longest, len(s))
		if !r.keepStop {
			c.stopping.back = max(c.stopping.back, utf8.RuneCountInString(s)-1)
		}
	}
	if c.stopping.tokens = r.stopIDs; len(r.stopIDs) > 0 && len(c.given) == 0 {
		c.stopping.masked = r.MinTokens
	}
	var window []byte // the end of the output so far
	for i := range limit {
		p := c.piece(i)
		old := len(window)
		window = append(window, p.text...)
		if i >= r.MinTokens {
			if slices.Contains(r.stopIDs, p.id) {
				c.stopAt, c.stopping.token, c.stopping.met = i+1, p.id, true
				if !r.keepStop {
					c.stopping.drop = len(p.text)
				}
				return
			}
			for _, s := range r.stops {
				// It must end within this token, or it would have been met before.
				from := max(0, old-len(s)+1)
				at := bytes.Index(window[from:], []byte(s))
				if at < 0 {
					continue
				}
				at += from
				if r.keepStop {
					at += len(s)
				}
				c.stopAt, c.stopping.text, c.stopping.drop = i+1, s, len(window)-at
				return
			}
		}
		if cut := len(window) - max(0, longest-1); cut > 0 {
			window = window[:copy(window, window[cut:])]
		}
	}
}

// own is the text that token number i lets the client see.
func (c *content) own(i int) string {
	p := c.piece(i)
	x := &c.stopping
	if x.back == 0 && x.drop == 0 {
		return p.text
	}
	text := c.heldBack(i) + p.text
	switch i {
	case c.stopAt - 1:
		return text[:max(0, len(text)-x.drop)]
	case c.total - 1:
		return text
	}
	return text[:len(text)-len(lastRunes(text, x.back))]
}

// heldBack is the text before token number i that no client has seen.
func (c *content) heldBack(i int) string {
	if c.stopping.back == 0 {
		return ""
	}
	var parts []string
	for k, runes := i-1, 0; k >= 0 && runes < c.stopping.back; k-- {
		p := c.piece(k)
		parts = append(parts, p.text)
		runes += utf8.RuneCountInString(p.text)
	}
	slices.Reverse(parts)
	return lastRunes(strings.Join(parts, ""), c.stopping.back)
}

// lastRunes is the last n characters of a text, or all of it.
func lastRunes(text string, n int) string {
	from := len(text)
	for ; n > 0 && from > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(text[:from])
		from -= size
	}
	return strings.Clone(text[from:])
}

// tellStop puts into a choice's last token what stopped it.
func (c *content) tellStop(t *Token) {
	if t.Done != openai.FinishStop {
		return
	}
	if t.Stop = c.stopping.text; c.stopping.met {
		t.StopID = &c.stopping.token
	}
}
