package modelserver

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
)

// prompt is the prompt that a body becomes, or why it becomes none.
func prompt(t *testing.T, template, path, body string) string {
	t.Helper()
	rd := testReader(t, func(c *Config) {
		if template == "" {
			return
		}
		var err error
		if c.ChatTemplate, err = chattemplate.Parse("t", template, nil); err != nil {
			t.Fatal(err)
		}
	})
	q, bad := APIOf(path).Read(rd, &Head{RequestID: "r"}, []byte(body))
	if bad != nil {
		return bad.Message
	}
	return q.Prompts[0].Text
}

// What a request says of tools, of what they said and of how its prompt ends
// reaches the chat template, whatever API it uses, as in vLLM
// (vllm/entrypoints/anthropic/serving.py, vllm/entrypoints/openai/responses/utils.py,
// vllm/renderers/).
func TestPrompts(t *testing.T) {
	t.Parallel()
	const (
		dumped = `{{ messages | tojson }}{{ tools | tojson }}{% if add_generation_prompt %}:{% endif %}`
		framed = `{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt ` +
			`%}<assistant>{% endif %}`
		parted = `{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for c ` +
			`in m.content %}[{{ c.type }} {{ c.text }}]{% endfor %}{% endif %}{% endfor %}`

		chat, messages, responses = "/v1/chat/completions", "/v1/messages", "/v1/responses"

		weather = `{"name":"weather","description":"Tells it.",`
		schema  = `{"type":"object","properties":{"days":{"type":"integer"}}}`
		tools   = `[{"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": ` +
			`{"type": "object", "properties": {"days": {"type": "integer"}}}}}]`
		called = `[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}, {"role": ` +
			`"assistant", "content": "Let me see.", "tool_calls": [{"id": "c1", "type": "function", "function": ` +
			`{"name": "weather", "arguments": {"days": 2}}}]}, ` +
			`{"role": "tool", "content": "sunny", "tool_call_id": "c1"}, {"role": "user", "content": "Sure?"}]` +
			tools + ":"
	)
	for name, c := range map[string]struct{ template, path, body, want string }{
		"a chat with a call": {dumped, chat,
			`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Weather?"},{"role":"assistant","content":"Let me see.","tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"days\":2}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"sunny"},{"role":"user","content":"Sure?"}],"tools":[{"type":"function","function":` + weather + `"parameters":` + schema + `}}]}`, called},
		"messages with a call": {dumped, messages,
			`{"max_tokens":1,"system":[{"type":"text","text":"x-anthropic-billing-header: a=1;"},{"type":"text","text":"Be brief."}],"messages":[{"role":"user","content":"Weather?"},
			{"role":"assistant","content":[{"type":"text","text":"Let me see."},{"type":"tool_use","id":"c1","name":"weather","input":{"days":2}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"sunny"}]},{"type":"text","text":"Sure?"}]}],"tools":[` + weather + `"input_schema":` + schema + `}]}`, called},
		"responses with a call": {dumped, responses,
			`{"instructions":"Be brief.","input":[{"role":"user","content":"Weather?"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me see."}]},
			{"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"days\":2}"},{"type":"function_call_output","call_id":"c1","output":"sunny"},{"role":"user","content":"Sure?"}],"tools":[{"type":"function",` + weather[1:] + `"parameters":` + schema + `}]}`, called},
		"a call without a word": {dumped, responses,
			`{"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"c","name":"f",` +
				`"arguments":"{}"},{"type":"function_call","call_id":"d","name":"g","arguments":"{}"},` +
				`{"role":"assistant","content":"b"}]}`,
			`[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": [{"id": "c", ` +
				`"type": "function", "function": {"name": "f", "arguments": {}}}, {"id": "d", "type": "function", ` +
				`"function": {"name": "g", "arguments": {}}}]}]null:`},
		"what a tool said alone": {dumped, messages,
			`{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c",` +
				`"content":"ok"}]}]}`, `[{"role": "tool", "content": "ok", "tool_call_id": "c"}]null:`},
		"variables": {`{{ v }}{{ messages[0].content }}`, messages,
			`{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"v":7}}`, `7a`},

		"parts": {parted, chat,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},` +
				`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"d"},{"type":"text",` +
				`"text":"e"}]}]}`, "<user>[text a][text b]<tool>d\ne"},
		"one part": {parted, chat, `{"messages":[{"role":"user","content":"a"}]}`, `<user>[text a]`},
		"parts as a text": {framed, chat,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
			"<user>a\nb</><assistant>"},
		"parts of a message": {parted, messages,
			`{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text",` +
				`"text":"b"}]}]}`, `<user>[text a][text b]`},

		"no answer begun": {framed, chat,
			`{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false}`, `<user>a</>`},
		"continued": {framed, chat,
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"So "}],` +
				`"add_generation_prompt":false,"continue_final_message":true}`, `<user>a</><assistant>So `},
		"continued in parts": {parted, chat,
			`{"messages":[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],` +
				`"add_generation_prompt":false,"continue_final_message":true}`, `<assistant>[text a][text b`},
		"continued and not said": {`x`, chat,
			`{"messages":[{"role":"assistant","content":"So"}],"add_generation_prompt":false,` +
				`"continue_final_message":true}`,
			"continue_final_message is set but the final message does not appear"},
		"continued and begun": {framed, chat,
			`{"messages":[{"role":"assistant","content":"So"}],"add_generation_prompt":true,` +
				`"continue_final_message":true}`,
			"Cannot set both `continue_final_message` and `add_generation_prompt` to True."},
		"continued by itself": {framed, chat,
			`{"messages":[{"role":"assistant","content":"So"}],"continue_final_message":true}`,
			"continue_final_message and add_generation_prompt are not compatible."},
		"no template, continued": {"", chat,
			`{"messages":[{"role":"assistant","content":"So "}],"add_generation_prompt":false,` +
				`"continue_final_message":true}`, "<|im_start|>assistant\nSo "},
		"no template, no answer": {"", chat,
			`{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false}`,
			"<|im_start|>user\na<|im_end|>\n"},
	} {
		if got := prompt(t, c.template, c.path, c.body); got != c.want &&
			(!strings.HasPrefix(c.want, "continue") || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}
