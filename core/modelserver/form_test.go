package modelserver

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// asking is a request for an answer of a form.
func asking(t testing.TB, rd *Reader, key string, outputs string, maxTokens int) *Request {
	t.Helper()
	p := &openai.Sampling{Model: "m", StructuredOutputs: json.RawMessage(outputs)}
	q, bad := rd.FromPrompt(key, rd.Prompt("Hello"), p, maxTokens, maxTokens > 0)
	if bad != nil {
		t.Fatal(bad)
	}
	return q
}

func (c *content) upTo(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(c.piece(i).text)
	}
	return b.String()
}

const person = `{"json": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "friends": {"type": "array", "items": {"$ref": "#"}}}, "required": ["name", "age"]}}`

// A structured answer that is cut begins as the whole does, whatever the limit: the
// first token of a prefill leg is that of the decode leg.
func TestFormsAreCut(t *testing.T) {
	t.Parallel()
	rd := testReader(t, nil)
	rapid.Check(t, func(r *rapid.T) {
		key := rapid.StringMatching("[a-z]{1,8}").Draw(r, "key")
		whole := rd.content(asking(t, rd, key, person, 0), 0)
		n := len(whole.given)
		if !json.Valid([]byte(whole.upTo(n))) || whole.stopAt != n || whole.total != n {
			t.Fatalf("%q ends at %d of %d", whole.upTo(n), whole.stopAt, n)
		}
		limit := rapid.IntRange(1, n+2).Draw(r, "max_tokens")
		cut := rd.content(asking(t, rd, key, person, limit), 0)
		if cut.upTo(min(n, limit)) != whole.upTo(min(n, limit)) {
			t.Fatalf("%q begins as %q", whole.upTo(n), cut.upTo(min(n, limit)))
		}
		if ends := cut.stopAt > 0; ends != (limit > n) || cut.total != min(n, limit) {
			t.Fatalf("%d of %d tokens: %d in all, ends %v", limit, n, cut.total, ends)
		}
	})
}

// With every tokenizer the tokens say the text of the form and nothing else.
func TestFormsInTokens(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", "tokenizer.json", "sentencepiece.json"} {
		rd := testReader(t, func(c *Config) {
			if file == "" {
				return
			}
			raw, err := os.ReadFile("../tokens/testdata/" + file)
			if err != nil {
				t.Fatal(err)
			}
			bpe, err := tokens.ParseTokenizerJSON(raw)
			if err != nil {
				t.Fatal(err)
			}
			c.Tokenizer, c.Vocabulary = bpe, tokens.NewVocabulary(bpe)
		})
		for _, text := range []string{"yes", " yes", "é\"x\" no", "", "{}"} {
			raw, err := json.Marshal(map[string]any{"choice": []string{text}})
			if err != nil {
				t.Fatal(err)
			}
			c := rd.content(asking(t, rd, "k", string(raw), 0), 0)
			if got := c.upTo(len(c.given)); got != text || c.stopAt < 1 {
				t.Errorf("%s: %q is said as %q, ending at %d", file, text, got, c.stopAt)
			}
		}
	}
}

// A small request cannot have much made for it: its work is counted.
func TestFormsAreBounded(t *testing.T) {
	t.Parallel()
	rd := testReader(t, func(c *Config) { c.Engine.MaxModelLen = 1 << 17 })
	for name, outputs := range map[string]string{
		"never an end":     `{"json": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}}`,
		"never a letter":   `{"grammar": "root ::= root root"}`,
		"doubling":         `{"grammar": "root ::= a a\na ::= b b\nb ::= c c\nc ::= [x]{1000} root"}`,
		"many repetitions": `{"regex": "((((a{1000}){1000}){1000}){1000})"}`,
		"many definitions": `{"json": {"anyOf": [` + strings.Repeat(`{"type": "object", "properties": {"a": {"type": "string"}}},`, 10000) + `{"type": "null"}]}}`,
		"long strings":     `{"json": {"type": "string", "minLength": 1000000000}}`,
		"long lists":       `{"json": {"type": "array", "items": {"const": 1}, "minItems": 1000000000}}`,
		"many choices":     `{"choice": ["` + strings.Repeat(`a","`, 20000) + `b"]}`,
		"merging":          `{"json": {"allOf": [{"$ref": "#"}, {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}]}}`,
	} {
		p := &openai.Sampling{Model: "m", StructuredOutputs: json.RawMessage(outputs)}
		q, bad := rd.FromPrompt("k", rd.Prompt("Hello"), p, 1<<16, true)
		if bad == nil {
			rd.content(q, 0)
			if q.work.spent > maxWork+1<<20 {
				t.Errorf("%s: %d spent", name, q.work.spent)
			}
		} else if bad.Status != 400 {
			t.Errorf("%s: %v", name, bad)
		}
	}
}
