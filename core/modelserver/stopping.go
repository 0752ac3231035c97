package modelserver

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// stopping holds the conditions that may end a completion before its limit: stop strings and stop tokens, by vLLM's
// rules (vllm/v1/core/sched/utils.py and vllm/v1/engine/detokenizer.py). The server knows the text of a completion from
// the start, and therefore whether the text meets a condition.
//
//   - A stop token ends the output. It counts as a token, and the client sees its
//     text only with include_stop_str_in_output. It cannot be among the first
//     min_tokens tokens: random content then has another word, because the model's
//     logits are masked.
//   - A stop string ends the output at the first token after min_tokens that
//     completes one. If a token completes several, the first in the request's list
//     counts. The client sees the text before the stop string, and the stop string
//     itself with include_stop_str_in_output.
//   - A stream lags by as many characters as the longest stop string has, less
//     one, so that it never sends the beginning of a stop string.
//   - ignore_eos affects the end-of-sequence token alone.
type stopping struct {
	tokens []uint32 // stop_token_ids
	masked int      // the first so many tokens are not stop tokens
	back   int      // characters that a stream holds back
	drop   int      // bytes at the output's end that the client does not see
	text   string   // the stop string met
	token  uint32   // the stop token met
	met    bool     // a token, not a string, was met
}

// Limits on stop conditions: the server checks each token of an output for all of them.
const (
	maxStops     = 128
	maxStopBytes = 8192 // of all strings together
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

// allowed returns a word that is not a stop token, in place of one that may be.
func (c *content) allowed(i int, id uint32, word string) (uint32, string) {
	const tries = 64 // after so many tries, stop tokens cover practically the whole vocabulary
	for n := uint64(1); n < tries && slices.Contains(c.stopping.tokens, id); n++ {
		id, word = c.voc.Pick(c.base^n<<48, i)
	}
	return id, word
}

// findStop finds the first stop condition that the output meets within limit tokens.
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
				// The stop string must end within this token. An earlier end would have been found before.
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

// own returns the text of token number i that the client may see.
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

// heldBack returns the text before token number i that the server has not sent yet.
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

// lastRunes returns the last n characters of a text, or all of it.
func lastRunes(text string, n int) string {
	from := len(text)
	for ; n > 0 && from > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(text[:from])
		from -= size
	}
	return strings.Clone(text[from:])
}

// setStop sets the stop condition in a choice's last token.
func (c *content) setStop(t *Token) {
	if t.Done != openai.FinishStop {
		return
	}
	if t.Stop = c.stopping.text; c.stopping.met {
		t.StopID = &c.stopping.token
	}
}
