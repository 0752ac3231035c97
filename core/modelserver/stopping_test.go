package modelserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// plainStop does the same as vLLM, token by token, in the simplest way: the scheduler checks the token, then the
// detokenizer checks the text.
func plainStop(c *content, r *Request, limit int) (tokens int, text, reason string) {
	longest := 0
	for _, s := range r.stops {
		longest = max(longest, utf8.RuneCountInString(s))
	}
	for i := range limit {
		p := c.piece(i)
		if i < r.MinTokens {
			text += p.text
			continue
		}
		if slices.Contains(r.stopIDs, p.id) {
			if r.keepStop {
				text += p.text
			}
			return i + 1, text, fmt.Sprint(p.id)
		}
		before := len(text)
		text += p.text
		for _, s := range r.stops {
			for at := 0; at+len(s) <= len(text); at++ {
				if text[at:at+len(s)] != s || at+len(s) <= before {
					continue
				}
				if r.keepStop {
					at += len(s)
				}
				return i + 1, text[:at], s
			}
		}
	}
	return limit, text, ""
}

func TestStopsAreVLLMs(t *testing.T) {
	rd := testReader(t, nil)
	rapid.Check(t, func(t *rapid.T) {
		r := &Request{Key: rapid.StringMatching("[a-z]{1,4}").Draw(t, "id"), N: 1,
			Prompts: []Prompt{{Tokens: []uint32{1}}}, IgnoreEOS: true}
		r.MaxTokens = rapid.IntRange(1, 40).Draw(t, "max_tokens")
		r.MinTokens = rapid.IntRange(0, r.MaxTokens).Draw(t, "min_tokens")
		r.keepStop = rapid.Bool().Draw(t, "include_stop_str_in_output")
		plain := rd.content(r, 0) // what would be said without stops
		said := ""
		for i := range r.MaxTokens {
			said += plain.piece(i).text
		}
		for range rapid.IntRange(0, 2).Draw(t, "stop strings") {
			at := rapid.IntRange(0, len(said)-1).Draw(t, "at")
			r.stops = append(r.stops, said[at:min(len(said), at+rapid.IntRange(1, 9).Draw(t, "length"))])
		}
		for range rapid.IntRange(0, 2).Draw(t, "stop tokens") {
			r.stopIDs = append(r.stopIDs, plain.piece(rapid.IntRange(0, r.MaxTokens-1).Draw(t, "token")).id)
		}
		c := rd.content(r, 0)
		tokens, text, reason := plainStop(c, r, r.MaxTokens)
		last := Token{Index: c.total - 1, Done: openai.FinishLength}
		if c.stopAt > 0 {
			last.Done = openai.FinishStop
		}
		c.fill(&last)
		got := last.Stop
		if last.StopID != nil {
			got = fmt.Sprint(*last.StopID)
		}
		sent, longest := "", 0
		for _, x := range r.stops {
			longest = max(longest, utf8.RuneCountInString(x))
		}
		for i := range c.total {
			sent += c.text(i)
			if !strings.HasPrefix(text, sent) {
				t.Fatalf("after token %d, %q was sent, with which %q does not begin", i, sent, text)
			}
		}
		if c.total != tokens || sent != text || got != reason {
			t.Fatalf("%d tokens %q, stopped by %q; want %d tokens %q, stopped by %q", c.total, sent, got, tokens, text,
				reason)
		}
		for i := range min(r.MinTokens, c.total) {
			if slices.Contains(r.stopIDs, c.piece(i).id) {
				t.Fatalf("token %d of at least %d is a stop token", i, r.MinTokens)
			}
		}
	})
}
