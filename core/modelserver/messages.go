package modelserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/openai"
)

// messagesRequest is what is read of a POST to /v1/messages, Anthropic's API.
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

// messagesContent is a list of blocks, or a string, which is one of text.
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

// texts are the text blocks that say something.
func (c messagesContent) texts() (out []string) {
	for _, b := range c {
		if b.Type == "text" && b.Text != "" {
			out = append(out, b.Text)
		}
	}
	return out
}

// system is the text of instructions. What Claude Code says of its bill has a hash of
// the request, and would be in no cache.
func (c messagesContent) system() string {
	return strings.Join(slices.DeleteFunc(c.texts(),
		func(t string) bool { return strings.HasPrefix(t, "x-anthropic-billing-header") }), "")
}

// image is a picture as a part of OpenAI's.
func (b *messagesBlock) image() openai.Part {
	url := b.Source.URL
	if b.Source.Data != "" {
		url = "data:" + cmp.Or(b.Source.MediaType, "image/jpeg") + ";base64," + b.Source.Data
	}
	return openai.Part{Type: "image_url", URL: url}
}

// appendTurn appends a turn to a chat: what tools said are turns of their own, before
// what the user says.
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

// chat is the request as vLLM makes a chat of it
// (vllm/entrypoints/anthropic/serving.py).
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
	text, bad := r.ChatText(chat)
	if bad != nil {
		return nil, bad
	}
	q := &Request{Key: key, ID: "msg_" + key, N: 1, Stream: m.Stream, Prompts: []Prompt{r.Prompt(text)},
		echoText: strings.Join(m.Messages[len(m.Messages)-1].Content.texts(), "\n")}
	if bad := r.fill(q, &p, *m.MaxTokens, true); bad != nil {
		return nil, bad
	}
	r.show(q, chat.Messages, text)
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

// messagesFormat is output_config.format as the chat's response_format.
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

// CountMessages is how many tokens the prompt of a body to /v1/messages has.
func (r *Reader) CountMessages(body []byte) (int, *openai.Error) {
	var m messagesRequest
	if bad := openai.Decode(body, &m); bad != nil {
		return 0, bad
	}
	text, bad := r.ChatText(m.chat())
	if bad != nil {
		return 0, bad
	}
	return len(r.tokenize(text)), nil
}

// AppendMessagesError appends an error in Anthropic's form.
func AppendMessagesError(b []byte, e *openai.Error) []byte {
	b = append(b, `{"type":"error","error":{"type":"`...)
	b = append(b, apierror.Of(e.Status).Anthropic...)
	b = append(b, `","message":`...)
	b = openai.AppendString(b, e.Message)
	return append(b, "}}"...)
}

// messagesEncoder encodes /v1/messages.
type messagesEncoder struct {
	req     *Request
	prompt  int
	opened  bool
	tool    *toolCall
	args    []byte // of the tool, until they are whole: they stand as an object
	reason  openai.FinishReason
	stopped string
}

func (e *messagesEncoder) ContentType() string {
	if e.req.Stream {
		return eventStream
	}
	return jsonType
}

func (e *messagesEncoder) Begin(b []byte, u openai.Usage) []byte {
	e.prompt = u.PromptTokens
	if e.req.Stream {
		b = append(b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	}
	b = append(b, `{"id":`...)
	b = openai.AppendString(b, e.req.ID)
	b = append(b, `,"type":"message","role":"assistant","model":`...)
	b = openai.AppendString(b, e.req.Model)
	b = append(b, `,"content":[`...)
	if e.req.Stream {
		b = append(b, `],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":`...)
		b = strconv.AppendInt(b, int64(u.PromptTokens), 10)
		b = append(b, `,"output_tokens":0}}}`+"\n\n"...)
	}
	return b
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
			b = append(b, "event: content_block_delta\ndata: "+
				`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":`...)
			b = append(openai.AppendString(b, t.Text), "}}\n\n"...)
		case e.req.Stream:
			b = append(b, "event: content_block_delta\ndata: "+
				"{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":"...)
			b = append(openai.AppendString(b, t.Text), "}}\n\n"...)
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
	if e.req.Stream {
		b = append(b, "event: content_block_start\ndata: "+
			"{\"type\":\"content_block_start\",\"index\":0,\"content_block\":"...)
		if e.tool != nil {
			b = e.toolHead(b)
			return append(b, "{}}}\n\n"...)
		}
		return append(b, "{\"type\":\"text\",\"text\":\"\"}}\n\n"...)
	}
	if e.tool != nil {
		return e.toolHead(b)
	}
	return append(b, `{"type":"text","text":"`...)
}

func (e *messagesEncoder) toolHead(b []byte) []byte {
	b = append(b, `{"type":"tool_use","id":`...)
	b = openai.AppendString(b, "toolu_"+e.tool.id)
	b = append(b, `,"name":`...)
	b = openai.AppendString(b, e.tool.name)
	return append(b, `,"input":`...)
}

func (e *messagesEncoder) close(b []byte) []byte {
	switch {
	case e.req.Stream:
		return append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"...)
	case e.tool != nil:
		return append(append(b, structured.Close(e.args)...), '}')
	}
	return append(b, `"}`...)
}

func (e *messagesEncoder) stop(b []byte) []byte {
	reason := "end_turn"
	switch {
	case e.reason == openai.FinishLength:
		reason = "max_tokens"
	case e.tool != nil:
		reason = "tool_use"
	case e.stopped != "":
		reason = "stop_sequence"
	}
	b = append(b, `"stop_reason":"`...)
	b = append(b, reason...)
	b = append(b, `","stop_sequence":`...)
	return appendStringOrNull(b, e.stopped)
}

func (e *messagesEncoder) End(b []byte, u openai.Usage, kv, extra []byte) []byte {
	if e.req.Stream {
		b = append(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
		b = e.stop(b)
		b = append(b, `},"usage":{"input_tokens":`...)
		b = strconv.AppendInt(b, int64(u.PromptTokens), 10)
		b = openai.AppendField(b, "output_tokens", u.CompletionTokens)
		b = append(b, "}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\""...)
		b = append(b, extra...)
		return append(b, "}\n\n"...)
	}
	b = append(b, "],"...)
	b = e.stop(b)
	b = append(b, `,"usage":{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(u.PromptTokens), 10)
	b = openai.AppendField(b, "output_tokens", u.CompletionTokens)
	b = append(b, '}')
	b = append(b, kvField(kv)...)
	b = append(b, extra...)
	return append(b, '}')
}

func (e *messagesEncoder) Fail(b []byte, err *openai.Error) []byte {
	if e.req.Stream {
		b = append(b, "event: error\ndata: "...)
		b = AppendMessagesError(b, err)
		return append(b, "\n\n"...)
	}
	if e.opened && e.reason == "" {
		b = e.close(b)
	}
	b = append(b, `],`...)
	whole := openai.AppendError(nil, err)
	return append(b, whole[1:]...)
}
