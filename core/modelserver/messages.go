package modelserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// messagesRequest holds the fields of a POST to /v1/messages, Anthropic's API.
type messagesRequest struct {
	Model     string          `json:"model"`
	MaxTokens *int            `json:"max_tokens"`
	Messages  []messagesTurn  `json:"messages"`
	System    messagesContent `json:"system"`
	Stops     []string        `json:"stop_sequences"`
	Stream    bool            `json:"stream"`
	Temp      *float64        `json:"temperature"`
	TopP      *float64        `json:"top_p"`
	TopK      *int            `json:"top_k"`
	Tools     []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	ToolChoice struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"tool_choice"`
	Output struct {
		Format json.RawMessage `json:"format"`
	} `json:"output_config"`
	KV        json.RawMessage `json:"kv_transfer_params"`
	Variables json.RawMessage `json:"chat_template_kwargs"`
}

type messagesTurn struct {
	Role    string          `json:"role"`
	Content messagesContent `json:"content"`
}

// messagesContent is a list of blocks. A string becomes one text block.
type messagesContent []messagesBlock

type messagesBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   messagesContent `json:"content"`
	Source    struct {
		URL       string `json:"url"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

func (c *messagesContent) UnmarshalJSON(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	if raw[0] != '[' {
		var s *string
		if err := json.Unmarshal(raw, &s); err != nil {
			return openai.Errorf(400, "messages", "messages.content: expected a string or a list of blocks.")
		}
		if s != nil {
			*c = messagesContent{{Type: "text", Text: *s}}
		}
		return nil
	}
	var blocks []messagesBlock
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return err
	}
	if len(blocks) > openai.MaxParts {
		return openai.Errorf(400, "messages", "messages.content: expected at most %d blocks, got %d.", openai.MaxParts,
			len(blocks))
	}
	*c = blocks
	return nil
}

// texts returns the text blocks that are not empty.
func (c messagesContent) texts() (out []string) {
	for _, b := range c {
		if b.Type == "text" && b.Text != "" {
			out = append(out, b.Text)
		}
	}
	return out
}

// system returns the text of the instructions. It leaves out Claude Code's billing block, which contains a hash of the
// request and would defeat the prefix cache.
func (c messagesContent) system() string {
	return strings.Join(slices.DeleteFunc(c.texts(),
		func(t string) bool { return strings.HasPrefix(t, "x-anthropic-billing-header") }), "")
}

// image returns a picture as a content part of OpenAI's API.
func (b *messagesBlock) image() openai.Part {
	url := b.Source.URL
	if b.Source.Data != "" {
		url = "data:" + cmp.Or(b.Source.MediaType, "image/jpeg") + ";base64," + b.Source.Data
	}
	return openai.Part{Type: "image_url", URL: url}
}

// appendTurn appends a turn to a chat. Tool results become turns of their own, before the user's text.
func appendTurn(out []openai.Message, m *messagesTurn) []openai.Message {
	turn := openai.Message{Role: m.Role}
	if m.Role == "system" {
		if turn.Content.Text = m.Content.system(); turn.Content.Text == "" {
			return out
		}
		return append(out, turn)
	}
	var texts []string
	for i := range m.Content {
		switch b := &m.Content[i]; b.Type {
		case "text":
			if b.Text != "" {
				texts = append(texts, b.Text)
			}
		case "image":
			turn.Content.Media = append(turn.Content.Media, b.image())
		case "tool_use":
			call := openai.ToolCall{ID: b.ID, Type: "function"}
			call.Function.Name, call.Function.Arguments = b.Name, "{}"
			if given(b.Input) {
				call.Function.Arguments = string(b.Input)
			}
			turn.ToolCalls = append(turn.ToolCalls, call)
		case "tool_result":
			said := strings.Join(b.Content.texts(), "\n")
			if m.Role != "user" {
				texts = append(texts, "Tool result: "+said)
				continue
			}
			out = append(out, openai.Message{Role: "tool", ToolCallID: b.ToolUseID,
				Content: openai.Content{Text: said}})
			var shown []openai.Part
			for k := range b.Content {
				if b.Content[k].Type == "image" {
					shown = append(shown, b.Content[k].image())
				}
			}
			if len(shown) > 0 {
				out = append(out, openai.Message{Role: "user", Content: openai.Content{Media: shown}})
			}
		}
	}
	turn.Content.SetTexts(texts)
	if m.Role == "user" && len(texts) == 0 && len(turn.Content.Media) == 0 && len(m.Content) > 0 {
		return out
	}
	return append(out, turn)
}

// chat returns the chat request that vLLM makes of a message request (vllm/entrypoints/anthropic/serving.py).
func (q *messagesRequest) chat() *openai.Chat {
	c := &openai.Chat{ChatTemplateKwargs: q.Variables, Tools: make([]openai.Tool, len(q.Tools))}
	if text := q.System.system(); text != "" {
		c.Messages = append(c.Messages, openai.Message{Role: "system", Content: openai.Content{Text: text}})
	}
	for i := range q.Messages {
		c.Messages = appendTurn(c.Messages, &q.Messages[i])
	}
	for i, t := range q.Tools {
		f := &c.Tools[i].Function
		c.Tools[i].Type, f.Name, f.Description, f.Parameters = "function", t.Name, t.Description, t.Schema
	}
	return c
}

// readMessages reads /v1/messages.
func (r *Reader) readMessages(head *Head, body []byte) (*Request, *openai.Error) {
	m := new(messagesRequest)
	if bad := openai.Decode(body, m); bad != nil {
		return nil, bad
	}
	switch {
	case len(m.Messages) == 0:
		return nil, openai.Errorf(400, "messages", "messages: expected at least one message.")
	case m.MaxTokens == nil:
		return nil, openai.Errorf(400, "max_tokens", "max_tokens: field required.")
	case *m.MaxTokens < 1:
		return nil, openai.Errorf(400, "max_tokens", "max_tokens must be at least 1, got %d.", *m.MaxTokens)
	}
	p := openai.Sampling{Model: m.Model, Stop: m.Stops, Temperature: m.Temp, TopP: m.TopP, TopK: m.TopK,
		KVTransferParams: m.KV}
	if bad := p.Check(); bad != nil {
		return nil, bad
	}
	if f := m.Output.Format; given(f) {
		var bad *openai.Error
		if p.ResponseFormat, bad = messagesFormat(f); bad != nil {
			return nil, bad
		}
	}
	key := head.id(&p)
	chat := m.chat()
	text, bad := r.ChatText(chat, head.Client)
	if bad != nil {
		return nil, bad
	}
	q := &Request{Key: key, ID: "msg_" + key, N: 1, Stream: m.Stream, Prompts: []Prompt{r.Prompt(text)},
		echoText: strings.Join(m.Messages[len(m.Messages)-1].Content.texts(), "\n")}
	r.show(q, chat.Messages, text)
	if bad := r.fill(q, &p, *m.MaxTokens, true); bad != nil {
		return nil, bad
	}
	choice := openai.ToolChoice{Mode: m.ToolChoice.Type, Name: m.ToolChoice.Name}
	switch m.ToolChoice.Type {
	case "any":
		choice.Mode = "required"
	case "tool":
		choice.Mode = "function"
	}
	if bad := r.offer(q, chat.Tools, choice); bad != nil {
		return nil, bad
	}
	q.Encoder = &messagesEncoder{req: q}
	return q, nil
}

// messagesFormat converts output_config.format to the chat's response_format.
func messagesFormat(raw json.RawMessage) (json.RawMessage, *openai.Error) {
	var f struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}
	if bad := openai.Decode(raw, &f); bad != nil {
		bad.Message = "output_config.format: " + bad.Message
		return nil, bad
	}
	if f.Type != "json_schema" || !given(f.Schema) {
		return nil, openai.Errorf(400, "output_config",
			"output_config.format: expected the type json_schema and a schema, got the type %q.", f.Type)
	}
	return slices.Concat([]byte(`{"type":"json_schema","json_schema":{"name":"output","schema":`), f.Schema,
		[]byte("}}")), nil
}

// CountMessages returns how many tokens the prompt of a body to /v1/messages has; client is as in ChatText.
func (r *Reader) CountMessages(body []byte, client chattemplate.Client) (int, *openai.Error) {
	var m messagesRequest
	if bad := openai.Decode(body, &m); bad != nil {
		return 0, bad
	}
	text, bad := r.ChatText(m.chat(), client)
	if bad != nil {
		return 0, bad
	}
	return len(r.tokenize(text)), nil
}

// AppendMessagesError appends an error in Anthropic's form.
func AppendMessagesError(b []byte, e *openai.Error) []byte {
	return openai.Fill(b, `{"type":"error","error":{"type":$,"message":$}}`, apierror.Of(e.Status).Anthropic, e.Message)
}

// messagesEncoder encodes /v1/messages.
type messagesEncoder struct {
	req     *Request
	prompt  int
	opened  bool
	tool    *toolCall
	args    []byte // arguments of the tool so far; they are sent as one object
	reason  openai.FinishReason
	stopped string
}

func (e *messagesEncoder) ContentType() string { return e.req.contentType() }

func (e *messagesEncoder) Begin(b []byte, u openai.Usage) []byte {
	e.prompt = u.PromptTokens
	const head = `{"id":$,"type":"message","role":"assistant","model":$,"content":[`
	if !e.req.Stream {
		return openai.Fill(b, head, e.req.ID, e.req.Model)
	}
	return event(b, "message_start", `,"message":`+head+`],"stop_reason":null,"stop_sequence":null,`+
		`"usage":{"input_tokens":$,"output_tokens":0}}`, e.req.ID, e.req.Model, u.PromptTokens)
}

// event appends a named event with its type and fields.
func event(b []byte, name, fields string, values ...any) []byte {
	b = append(append(b, "event: "...), name...)
	return append(openai.Fill(openai.Fill(b, "\ndata: "+`{"type":$`, name), fields, values...), "}\n\n"...)
}

func (e *messagesEncoder) Token(b []byte, t *Token) []byte {
	if t.of != nil {
		e.tool = t.of.tool
	}
	if !e.opened {
		e.opened = true
		b = e.open(b)
	}
	if !t.None {
		switch {
		case e.req.Stream && e.tool != nil:
			b = event(b, "content_block_delta", `,"index":0,"delta":{"type":"input_json_delta","partial_json":$}`,
				t.Text)
		case e.req.Stream:
			b = event(b, "content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":$}`, t.Text)
		case e.tool != nil:
			e.args = append(e.args, t.Text...)
		default:
			b = openai.AppendText(b, t.Text)
		}
	}
	if t.Done != "" {
		e.reason, e.stopped = t.Done, t.Stop
		b = e.close(b)
	}
	return b
}

func (e *messagesEncoder) open(b []byte) []byte {
	switch {
	case e.req.Stream && e.tool != nil:
		return event(b, "content_block_start", `,"index":0,"content_block":$`, append(e.toolHead(nil), "{}}"...))
	case e.req.Stream:
		return event(b, "content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)
	case e.tool != nil:
		return e.toolHead(b)
	}
	return append(b, `{"type":"text","text":"`...)
}

func (e *messagesEncoder) toolHead(b []byte) []byte {
	return openai.Fill(b, `{"type":"tool_use","id":$,"name":$,"input":`, "toolu_"+e.tool.id, e.tool.name)
}

func (e *messagesEncoder) close(b []byte) []byte {
	switch {
	case e.req.Stream:
		return event(b, "content_block_stop", `,"index":0`)
	case e.tool != nil:
		return append(append(b, structured.Close(e.args)...), '}')
	}
	return append(b, `"}`...)
}

// stopReason returns Anthropic's name for the finish reason.
func (e *messagesEncoder) stopReason() string {
	switch {
	case e.reason == openai.FinishLength:
		return "max_tokens"
	case e.tool != nil:
		return "tool_use"
	case e.stopped != "":
		return "stop_sequence"
	}
	return "end_turn"
}

func (e *messagesEncoder) End(b []byte, u openai.Usage, kv, extra []byte) []byte {
	const stop, usage = `"stop_reason":$,"stop_sequence":$`, `,"usage":{"input_tokens":$,"output_tokens":$}`
	values := []any{e.stopReason(), openai.OrNull(e.stopped), u.PromptTokens, u.CompletionTokens}
	if e.req.Stream {
		b = event(b, "message_delta", `,"delta":{`+stop+"}"+usage, values...)
		return event(b, "message_stop", string(extra))
	}
	b = openai.Fill(b, "],"+stop+usage, values...)
	return append(append(append(b, kvField(kv)...), extra...), '}')
}

func (e *messagesEncoder) Fail(b []byte, err *openai.Error) []byte {
	if e.req.Stream {
		b = append(b, "event: error\ndata: "...)
		return append(AppendMessagesError(b, err), "\n\n"...)
	}
	if e.opened && e.reason == "" {
		b = e.close(b)
	}
	return openai.Fill(b, `],"error":$}`, openai.ErrorInfo(err))
}
