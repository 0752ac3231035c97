package parse

import (
	"encoding/json"
	"strings"
	"testing"
)

// A renderer is asked for the model that it has, and in OpenAI's form.
func TestRenderBody(t *testing.T) {
	for _, c := range []struct{ name, path, body, want string }{
		{"chat", "/v1/chat/completions",
			`{"model": "client", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}`,
			`{"model": "R", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}`},
		{"completions", "/v1/completions", `{"prompt": ["a", "b"], "model": "client"}`,
			`{"prompt": ["a", "b"], "model": "R"}`},
		{"text", "/v1/messages",
			`{"model": "client", "max_tokens": 5, "temperature": 1, "system": "be brief", "messages": [{"role": ` +
				`"user", "content": "x"}]}`,
			`{"model":"R","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"x"}]}`},
		{"system blocks", "/v1/messages",
			`{"model": "client", "max_tokens": 5, "system": [{"type": "text", "text": "x-anthropic-billing-header: 7"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
			"messages": [{"role": "system", "content": [{"type": "text", "text": "c"}]}, {"role": "user", "content": [{"type": "text", "text": "x"}]}]}`,
			`{"model":"R","messages":[{"role":"system","content":"ab"},{"role":"system","content":"c"},` +
				`{"role":"user","content":"x"}]}`},
		{"pictures", "/v1/messages", `{"model": "client", "max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image", "source": {"type": "url", "url": "http://x/y"}},
			{"type": "image", "source": {"type": "base64", "data": "AAAA"}}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "BBBB"}}, {"type": "image", "source": {"type": "base64"}}]}]}`,
			`{"model":"R","messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url",` +
				`"image_url":{"url":"http://x/y"}},` +
				`{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,AAAA"}},{"type":"image_url",` +
				`"image_url":{"url":"data:image/png;base64,BBBB"}}]}]}`},
		{"tools", "/v1/messages", `{"model": "client", "max_tokens": 5, "tools": [{"name": "f", "description": "d", "input_schema": {"z": 1, "a": {}}, "strict": true}, {"name": "g"}], "messages": [
			{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "redacted_thinking", "data": "x"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"z":1e3, "a" : ["\u00e9\ud83d\ude00\n\"", true, null] }}, {"type": "tool_use", "name": "g", "input": { }}]},
			{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "l1"}, {"type": "image", "source": {"type": "url", "url": "u"}}, {"type": "text", "text": "l2"}]}, {"type": "text", "text": "go on"}]},
			{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "content": "only"}]},
			{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "t3", "content": "odd"}]}]}`,
			`{"model":"R","messages":[{"role":"assistant","tool_calls":[{"id":"t1","type":"function",` +
				`"function":{"name":"f","arguments":"{\"z\": 1e3, \"a\": [\"\\u00e9\\ud83d\\ude00\\n\\\"\", true, ` +
				`null]}"}},` +
				`{"id":"call_0000000000","type":"function","function":{"name":"g","arguments":"{}"}}],` +
				`"reasoning":"hm"},` +
				`{"role":"tool","content":"l1\nl2","tool_call_id":"t1"},{"role":"user",` +
				`"content":[{"type":"image_url","image_url":{"url":"u"}}]},{"role":"user","content":"go on"},` +
				`{"role":"tool","content":"only","tool_call_id":"t2"},{"role":"assistant","content":"Tool result: ` +
				`odd"}],` +
				`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"z":1,"a":{}},` +
				`"strict":true}},{"type":"function","function":{"name":"g","parameters":{"type":"object"}}}]}`},
	} {
		var p interface {
			Parse(path string, raw []byte) (*Body, error)
		} = OpenAI{}
		if strings.HasSuffix(c.path, "messages") {
			p = Anthropic{}
		}
		b, err := p.Parse(c.path, []byte(c.body))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, err := RenderBody(b, b.Raw(), "R")
		if err != nil || string(got) != c.want || !json.Valid(got) {
			t.Errorf("%s: %v\n%s\nexpected\n%s", c.name, err, got, c.want)
		}
	}
}

// Whatever the arguments of a call are, Python's form of them means the same.
func FuzzPythonJSON(f *testing.F) {
	for _, text := range []string{`{"a": [1, "\ud83d\ude00", {"b,:": null}]}`, `"\\\""`, `[1e400, -0]`, "\"\x7f\"",
		`"\ud800"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			t.Skip("only JSON is rendered")
		}
		out := pythonJSON([]byte(text))
		if !json.Valid([]byte(out)) {
			t.Fatalf("%q became %q", text, out)
		}
		if again := pythonJSON([]byte(out)); again != out {
			t.Fatalf("%q became %q, and that %q", text, out, again)
		}
		for _, r := range out {
			if r > 0x7e {
				t.Fatalf("%q became %q", text, out)
			}
		}
	})
}
