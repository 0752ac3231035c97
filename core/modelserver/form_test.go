package modelserver

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
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

const person = `{"json": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, ` +
	`"friends": {"type": "array", "items": {"$ref": "#"}}}, "required": ["name", "age"]}}`

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
			raw, err := os.ReadFile("../wire/tokens/testdata/" + file)
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
		"many definitions": `{"json": {"anyOf": [` +
			strings.Repeat(`{"type": "object", "properties": {"a": {"type": "string"}}},`, 10000) +
			`{"type": "null"}]}}`,
		"long strings": `{"json": {"type": "string", "minLength": 1000000000}}`,
		"long lists":   `{"json": {"type": "array", "items": {"const": 1}, "minItems": 1000000000}}`,
		"many choices": `{"choice": ["` + strings.Repeat(`a","`, 20000) + `b"]}`,
		"many excluded": `{"structural_tag": "{\"format\":{\"type\":\"any_text\",\"excludes\":[` +
			strings.Repeat(`\"a\",`, 50000) + `\"b\"]}}"}`,
		"many tags": `{"structural_tag": "{\"structures\":[` +
			strings.Repeat(`{\"begin\":\"a\",\"schema\":{},\"end\":\"\"},`, 20000) + `{}],\"triggers\":[` +
			strings.Repeat(`\"b\",`, 100000) + `\"a\"]}"}`,
		"repeating": `{"structural_tag": "{\"format\":{\"type\":\"repeat\",\"min\":1000000000,\"max\":-1,` +
			`\"content\":{\"value\":\"\"}}}"}`,
		"merging": `{"json": {"allOf": [{"$ref": "#"}, {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}]}}`,
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

// A form that was asked for before is not compiled again: it costs the request the
// same work, and says the same.
func TestFormsAreKept(t *testing.T) {
	t.Parallel()
	kept := NewForms()
	rd := testReader(t, func(c *Config) { c.Forms = kept })
	bare := testReader(t, nil)
	for i, outputs := range []string{
		person, person, `{"regex": "[a-z]+"}`, `{"grammar": "root ::= [a-z]+"}`, `{"json": "[a-z]+"}`,
		`{"structural_tag": "{\"format\":{\"type\":\"regex\",\"pattern\":\"[a-z]+\"}}"}`, `{"regex": "[a-z]+"}`,
	} {
		p := &openai.Sampling{Model: "m", StructuredOutputs: json.RawMessage(outputs)}
		said := func(rd *Reader) (string, int) {
			q, bad := rd.FromPrompt("k", rd.Prompt("Hello"), p, 20, true)
			if bad != nil {
				return bad.Message, 0
			}
			c := rd.content(q, 0)
			return c.upTo(c.total), q.work.spent
		}
		text, spent := said(rd)
		if again, other := said(bare); text != again || spent != other {
			t.Errorf("%d: %q for %d, %q for %d without what is kept", i, text, spent, again, other)
		}
	}
	if n := kept.kept.Len(); n != 4 {
		t.Errorf("%d forms are kept of 4 that were taken", n)
	}
	for i := range 2 * maxForms {
		kept.Put(FormKey{regexForm, strings.Repeat("a", i)}, Form{work: maxFormBytes / 100})
	}
	if n, bytes := kept.kept.Len(), kept.kept.Bytes(); n > 100 || bytes > maxFormBytes {
		t.Errorf("%d forms of %d bytes are kept", n, bytes)
	}
}

// The cost of repeating a schema: with the cache, and compiled again.
func BenchmarkSchemaAgain(b *testing.B) {
	for name, forms := range map[string]Forms{"kept": NewForms(), "anew": nil} {
		b.Run(name, func(b *testing.B) {
			rd := testReader(b, func(c *Config) { c.Forms = forms })
			p := &openai.Sampling{Model: "m", StructuredOutputs: json.RawMessage(person)}
			for b.Loop() {
				q := new(Request)
				if _, bad := rd.formOf(q, p); bad != nil {
					b.Fatal(bad)
				}
			}
		})
	}
}
