package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A Prober reads an answer event by event, whatever the sizes of its pieces, and reports mistakes in it.
func TestProbedAnswers(t *testing.T) {
	const token = `{"choices":[{"text":"a"}]}`
	for _, c := range []struct {
		name   string
		pieces []string
		tokens int
		cached int
		fails  string
	}{
		{name: "one event a piece",
			pieces: []string{"data: " + token + "\n\n", "data: " + token + "\n\n", "data: [DONE]\n\n"}, tokens: 2,
			cached: -1},
		{name: "cut anywhere", pieces: []string{"dat", "a:" + token[:7], token[7:] + "\r\n", "\r\n: alive\n\ndata: ",
			token + "\n\ndata: [DONE]\n\n"}, tokens: 2, cached: -1},
		{name: "over two lines", pieces: []string{"data: {\"choices\":[{\ndata: \"text\":\"a\"}]}\n\n"}, tokens: 1,
			cached: -1},
		{name: "with usage", pieces: []string{
			`data: {"choices":[{"text":""}],"usage":{"prompt_tokens":7,"completion_tokens":1}}` + "\n\n",
			`data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1,` +
				`"prompt_tokens_details":{"cached_tokens":4}}}` + "\n\n"}, tokens: 1, cached: 4},
		{name: "another prompt", pieces: []string{`data: {"choices":[],"usage":{"prompt_tokens":8}}` + "\n\n"},
			cached: -1, fails: "counts 8 tokens in a prompt of 7"},
		{name: "an error", pieces: []string{`data: {"error":{"message":"out of memory"}}` + "\n\n"}, cached: -1,
			fails: "out of memory"},
		{name: "no JSON", pieces: []string{"data: {\n\n"}, cached: -1, fails: "a piece of the answer"},
		{name: "without an end", pieces: []string{"data: " + strings.Repeat("x", maxProbeEvent)}, cached: -1,
			fails: "longer than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for _, piece := range c.pieces {
					fmt.Fprint(w, piece)
					w.(http.Flusher).Flush()
				}
			}))
			defer server.Close()
			arrived, cached, err := NewProber(server.URL, "", 1).answer(t.Context(), []byte("{}"), time.Now(), 7)
			if text := fmt.Sprint(err); len(arrived) != c.tokens || cached != c.cached || c.fails == "" && err != nil ||
				!strings.Contains(text, c.fails) {
				t.Errorf("%d tokens, %d cached, %v; expected %d, %d, %q", len(arrived), cached, err, c.tokens, c.cached,
					c.fails)
			}
		})
	}
}
