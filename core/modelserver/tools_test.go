package modelserver

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// nested is a schema of arrays within arrays, each of 32.
func nested(depth int) string {
	s := `{"type":"string"}`
	for range depth {
		s = `{"type":"array","minItems":32,"items":` + s + `}`
	}
	return `{"type":"object","required":["a"],"properties":{"a":` + s + `}}`
}

// A call that the client sees in full is the same as without the limit.
func TestToolCallsAreNotCut(t *testing.T) {
	t.Parallel()
	rd := testReader(t, nil)
	for depth := range 3 {
		for i := range 20 {
			r := &Request{Key: fmt.Sprint(i), N: 1, Prompts: []Prompt{{Tokens: []uint32{1}}},
				toolChoice: openai.ToolChoice{Mode: "required"}, tools: make([]openai.Tool, 1)}
			r.tools[0].Function.Parameters = []byte(nested(depth))
			var whole content
			rd.callOf(&whole, r, 0, 1<<20)
			text := ""
			for _, p := range whole.given {
				text += p.text
			}
			if !json.Valid([]byte(text)) {
				t.Fatalf("%s is no JSON", text)
			}
			n := len(whole.given)
			for _, limit := range []int{0, 1, n / 2, n - 1, n, n + 1} {
				var cut content
				rd.callOf(&cut, r, 0, limit)
				if given := min(limit, len(whole.given)); len(cut.given) < given || limit < len(whole.given) &&
					len(cut.given) <= limit {
					t.Fatalf("%d of %d pieces for a limit of %d", len(cut.given), len(whole.given), limit)
				}
				for k, p := range cut.given[:min(limit, len(whole.given))] {
					if p != whole.given[k] {
						t.Fatalf("piece %d is %q, want %q", k, p.text, whole.given[k].text)
					}
				}
			}
		}
	}
}
