package parse

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

var all = []Parser{OpenAI{}, Anthropic{}, VLLMHTTP{}, VLLMGRPC{}, Passthrough{}}

func TestErrorsAreTheRealOnes(t *testing.T) {
	three := all[:3]
	for _, c := range []struct{ path, body, want string }{
		{"/v1/chat/completions", `not json`,
			`error unmarshaling request bodyMap: invalid character 'o' in literal null (expecting 'u')`},
		{"/v1/chat/completions", `[1,2]`,
			`error unmarshaling request bodyMap: json: cannot unmarshal array into Go value of type ` +
				`map[string]interface {}`},
		{"/v1/chat/completions", ``, `error unmarshaling request bodyMap: unexpected end of JSON input`},
		{"/v1/chat/completions", `{}`, `invalid chat completions request: must have valid messages field`},
		{"/v1/chat/completions", `null`, `invalid chat completions request: must have valid messages field`},
		{"/v1/completions", `{"model":"m","prompt":""}`, `invalid completions request: must have prompt field`},
		{"/v1/completions", `{"model":"m","prompt":[[1]]}`, `invalid completions request: must have prompt field`},
		{"/v1/completions", `{"model":"m","prompt":[4294967296]}`,
			`invalid completions request: must have prompt field`},
		{"/v1/responses", `{"instructions":"x"}`, `invalid responses request: must have input field`},
		{"/v1/embeddings", `{"input":""}`, `invalid embeddings request: must have input field`},
		{"/v1/conversations", `{"items":[]}`, `invalid conversations request: must have items field`},
		{"/v1/messages", `{"messages":[]}`, `invalid messages request: must have at least one message`},
		{"/inference/v1/generate", `{"token_ids":[]}`, `invalid generate request: must have non-empty token_ids field`},
		{"/foo?x=1", `{}`, `no parser registered matching path suffix for: /foo`},
	} {
		p, err := Choose(three, c.path)
		if err == nil {
			_, err = p.Parse(c.path, []byte(c.body))
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%s %s: got %v, want %s", c.path, c.body, err, c.want)
		}
	}
}

// A prompt for a picture is held to the API, and has no tokens.
func TestPictures(t *testing.T) {
	const path = "/v1/images/generations"
	b, err := OpenAI{}.Parse(path, []byte(`{"model":"m","prompt":"a cat on a wall"}`))
	if err != nil {
		t.Fatal(err)
	}
	if b.Kind != Images || b.Model != "m" || len(b.Prompts) != 0 {
		t.Errorf("%+v", b)
	}
	if _, err := (OpenAI{}).Parse(path, []byte(`{"model":"m","prompt":""}`)); err == nil {
		t.Error("an empty prompt was taken")
	}
}

func TestPromptsThatAreTheSame(t *testing.T) {
	text := func(path, body string) string {
		t.Helper()
		p, err := Choose(all, path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.Parse(path, []byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		var s []string
		for _, p := range b.Prompts {
			s = append(s, string(p.Text()))
		}
		return strings.Join(s, "|")
	}
	chat := text("/v1/chat/completions", `{"messages":[{"role":"user","content":"abc"}]}`)
	for _, same := range []string{
		text("/v1/chat/completions",
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"bc"}]}]}`),
		text("/api/v1/chat/completions/", `{"messages":[{"role":"user","content":"abc"}]}`),
		text("/v1/completions", `{"prompt":"userabc"}`),
		text("/v1/completions", `{"prompt":["userabc"]}`),
		text("/v1/messages", `{"messages":[{"role":"user","content":"abc"}]}`),
	} {
		if same != chat {
			t.Errorf("got %q, want %q", same, chat)
		}
	}
	if text("/v1/embeddings", `{"input":"t"}`) == text("/v1/embeddings", `{"input":["t"]}`) {
		t.Error("an embedding string and an array of one are one prompt")
	}
}

func TestRewriteKeepsTheOtherBytes(t *testing.T) {
	for _, c := range [][2]string{
		{`{ "model" : "a", "big":12345678901234567890,"x":"<b>"}`,
			`{ "model" : "T\"", "big":12345678901234567890,"x":"<b>"}`},
		{`{"x":{"model":"in"},"model":"a","model":3 }`, `{"x":{"model":"in"},"model":"a","model":"T\"" }`},
		{`{}`, `{"model":"T\""}`},
		{` {"a":1}`, ` {"model":"T\"","a":1}`},
	} {
		got, err := RewriteModel([]byte(c[0]), `T"`)
		if err != nil || string(got) != c[1] {
			t.Errorf("%s: got %s %v, want %s", c[0], got, err, c[1])
		}
	}
}

func TestUsage(t *testing.T) {
	event := `{"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3,` +
		`"prompt_tokens_details":{"cached_tokens":1}}}`
	for _, none := range []string{`{"usage":null}`, `[DONE]`, ``} {
		if u, ok := (OpenAI{}).Usage([]byte(none), true); ok {
			t.Errorf("%s tells of %v", none, u)
		}
	}
	if u, ok := (OpenAI{}).Usage([]byte(event), true); !ok || u != (Usage{2, 1, 3, 1, true}) {
		t.Errorf("got %v %v", u, ok)
	}
	if u, ok := (Anthropic{}).Usage([]byte(`{"usage":{"input_tokens":5,"output_tokens":6}}`), false); !ok ||
		u.TotalTokens != 11 {
		t.Errorf("got %v %v", u, ok)
	}
}

// Any bytes on any parser: an error or a body, no panic; and what rewriting
// yields is JSON with the new model.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}],` +
			`"tools":[{}]}`,
		`{"prompt":[1,2]}`, `{"token_ids":[1],"features":{"mm_hashes":{"image":["a"]}}}`,
		"\x00\x00\x00\x00\x04\x12\x02\x12\x00"} {
		f.Add("/v1/chat/completions", []byte(s))
	}
	f.Add("/vllm.grpc.engine.VllmEngine/Generate", []byte("\x00\x00\x00\x00\x03\x1a\x01a"))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		for _, p := range all {
			b, err := p.Parse(path, body)
			p.Usage(body, true)
			p.Usage(body, false)
			if err != nil || !b.JSON() {
				continue
			}
			if b.EstimatedTokens() < 0 {
				t.Fatal("negative length")
			}
			out, err := RewriteModel(body, "target")
			if string(body) == "null" {
				continue
			}
			if err != nil {
				t.Fatalf("%q parses but cannot be rewritten: %v", body, err)
			}
			var m map[string]json.RawMessage
			if err := json.Unmarshal(out, &m); err != nil || string(m["model"]) != `"target"` {
				t.Fatalf("%q became %q", body, out)
			}
		}
	})
}

// The short way through plain messages and the long way are one.
func FuzzPlainMessages(f *testing.F) {
	for _, s := range []string{`[{"role":"user","content":"abc"}]`, `[{"content":"a","role":"b","content":"c"},{}]`,
		`[{"Role":"user"}]`,
		`[{"role":"u","content":"\u00e9"}]`, `[{"role":null,"content":"x"}]`, `[]`, `[null]`,
		`[{"role":"user","content":"\ud800"}]`,
		"[{\"role\":\"user\",\"content\":\"\xff\"}]", `{"a":{"role":"x"}}`, `[{"role":"x","name":"y"}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		if !json.Valid(v) {
			return
		}
		v = bytes.TrimSpace(v)
		short, ok := plainMessages(v)
		if !ok {
			return
		}
		var messages []chatMessage
		if err := json.Unmarshal(v, &messages); err != nil || len(messages) == 0 {
			t.Fatalf("%s: the short way takes what encoding/json does not: %v", v, err)
		}
		var long []byte
		for _, m := range messages {
			var s string
			if !isNull(m.Content) {
				if err := json.Unmarshal(m.Content, &s); err != nil {
					t.Fatalf("%s: %v", v, err)
				}
			}
			long = append(append(long, m.Role...), s...)
		}
		if !bytes.Equal(short, long) {
			t.Fatalf("%s: %q, and the long way %q", v, short, long)
		}
	})
}
