package modelserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// responsesRequest holds the fields of a POST to /v1/responses.
type responsesRequest struct {
	Model        string            `json:"model"`
	Input        json.RawMessage   `json:"input"`
	Instructions string            `json:"instructions"`
	MaxTokens    *int              `json:"max_output_tokens"`
	Stream       bool              `json:"stream"`
	Temperature  *float64          `json:"temperature"`
	TopP         *float64          `json:"top_p"`
	Tools        []json.RawMessage `json:"tools"`
	ToolChoice   openai.ToolChoice `json:"tool_choice"`
	Previous     string            `json:"previous_response_id"`
	Conversation json.RawMessage   `json:"conversation"`
	Store        *bool             `json:"store"`
	Metadata     map[string]string `json:"metadata"`
	Priority     int64             `json:"priority"`
	CacheSalt    string            `json:"cache_salt"`
	RequestID    string            `json:"request_id"`
	KV           json.RawMessage   `json:"kv_transfer_params"`
	Background   bool              `json:"background"`
	Text         json.RawMessage   `json:"text"`
	Structured   json.RawMessage   `json:"structured_outputs"`
}

// readResponses reads /v1/responses.
func (r *Reader) readResponses(head *Head, body []byte) (*Request, *openai.Error) {
	m := new(responsesRequest)
	if bad := openai.Decode(body, m); bad != nil {
		return nil, bad
	}
	items, bad := ParseItems(m.Input)
	if bad != nil {
		return nil, bad
	}
	p := openai.Sampling{Model: m.Model, Temperature: m.Temperature, TopP: m.TopP, Priority: m.Priority,
		CacheSalt: m.CacheSalt,
		RequestID: m.RequestID, KVTransferParams: m.KV, StructuredOutputs: m.Structured}
	if p.ResponseFormat, bad = m.format(); bad != nil {
		return nil, bad
	}
	if m.Background {
		return nil, m.refuseBackground(r.StoreResponses)
	}
	if bad := p.Check(); bad != nil {
		return nil, bad
	}
	key := head.id(&p)
	enc := &responsesEncoder{stored: r.State.Stored(), q: m, id: "resp_" + key, created: head.Created, items: items,
		store: r.StoreResponses && (m.Store == nil || *m.Store)}
	var messages []openai.Message
	if m.Instructions != "" {
		messages = append(messages, openai.Message{Role: "system", Content: openai.Content{Text: m.Instructions}})
	}
	if messages, bad = enc.history(r, messages); bad != nil {
		return nil, bad
	}
	messages = chatOf(messages, items)
	tools, bad := responsesTools(m.Tools)
	if bad != nil {
		return nil, bad
	}
	text, bad := r.ChatText(&openai.Chat{Messages: messages, Tools: tools}, head.Client)
	if bad != nil {
		return nil, bad
	}
	q := &Request{Key: key, ID: enc.id, N: 1, Stream: m.Stream, Prompts: []Prompt{r.Prompt(text)}}
	q.echoText = messages[len(messages)-1].Content.Text
	r.show(q, messages, text)
	limit, limited := 0, m.MaxTokens != nil
	if limited {
		if limit = *m.MaxTokens; limit < 1 {
			return nil, openai.Errorf(400, "max_output_tokens", "max_output_tokens must be at least 1, got %d.", limit)
		}
	}
	if bad := r.fill(q, &p, limit, limited); bad != nil {
		return nil, bad
	}
	if bad := r.offer(q, tools, m.ToolChoice); bad != nil {
		return nil, bad
	}
	enc.req, q.Encoder = q, enc
	return q, nil
}

// format converts text.format to the chat's response_format, which has the schema one level deeper.
func (m *responsesRequest) format() (json.RawMessage, *openai.Error) {
	if !given(m.Text) {
		return nil, nil
	}
	var text struct {
		Format json.RawMessage `json:"format"`
	}
	var f struct {
		Type string `json:"type"`
	}
	bad := openai.Decode(m.Text, &text)
	if bad == nil && given(text.Format) {
		bad = openai.Decode(text.Format, &f)
	}
	switch {
	case bad != nil:
		bad.Param, bad.Message = "text", "text: "+bad.Message
		return nil, bad
	case !given(text.Format):
		return nil, nil
	case given(m.Structured):
		return nil, openai.Errorf(400, "text", "Cannot specify both structured_outputs and text.format")
	case f.Type == "json_schema":
		return slices.Concat([]byte(`{"type":"json_schema","json_schema":`), text.Format, []byte("}")), nil
	}
	return text.Format, nil
}

// refuseBackground returns the answer to a background request, which clients do not wait for.
func (m *responsesRequest) refuseBackground(stores bool) *openai.Error {
	switch {
	case m.Store != nil && !*m.Store:
		return openai.Errorf(400, "background", "background can only be used when `store` is true")
	case stores:
		return openai.Errorf(400, "background", "The background mode is not simulated. Ask without `background`.")
	}
	return openai.Errorf(400, "background",
		"This vLLM engine does not support `store=True` and therefore does not support the background mode. "+
			"To enable these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when "+
			"launching "+
			"the vLLM server.")
}

// history puts earlier turns before the input: those of the response that this one follows, or of its conversation.
func (e *responsesEncoder) history(r *Reader, m []openai.Message) ([]openai.Message, *openai.Error) {
	if e.q.Previous != "" {
		before, ok := e.stored.Response(e.q.Previous)
		if !ok {
			return nil, UnknownResponse(e.q.Previous, r.StoreResponses)
		}
		// each request has its own instructions
		m = append(m, slices.DeleteFunc(slices.Clone(before),
			func(m openai.Message) bool { return m.Role == "system" })...)
	}
	if len(e.q.Conversation) == 0 || string(e.q.Conversation) == "null" {
		return m, nil
	}
	if json.Unmarshal(e.q.Conversation, &e.conversation) != nil {
		var o struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(e.q.Conversation, &o) != nil || o.ID == "" {
			return nil, openai.Errorf(400, "conversation", "conversation: expected an id or an object with an id.")
		}
		e.conversation = o.ID
	}
	items, ok := e.stored.Conversation(e.conversation)
	if !ok {
		return nil, openai.Errorf(404, "conversation", "Conversation with id '%s' not found.", e.conversation)
	}
	return chatOf(m, items), nil
}

// responsesTools parses tools in the Responses API's flat form.
func responsesTools(raw []json.RawMessage) ([]openai.Tool, *openai.Error) {
	if len(raw) > openai.MaxTools {
		return nil, openai.Errorf(400, "tools", "tools: expected at most %d, got %d.", openai.MaxTools, len(raw))
	}
	var out []openai.Tool
	for i, t := range raw {
		var flat struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		}
		if err := json.Unmarshal(t, &flat); err != nil {
			return nil, openai.Errorf(400, "tools", "tools[%d]: expected an object: %v.", i, err)
		}
		if flat.Type != "function" {
			continue // the model never calls the tools that a server runs itself
		}
		if flat.Name == "" {
			return nil, openai.Invalidf("tools", "tools[%d].name: field required.", i)
		}
		var tool openai.Tool
		tool.Type, tool.Function.Name, tool.Function.Description, tool.Function.Parameters = flat.Type, flat.Name,
			flat.Description, flat.Parameters
		out = append(out, tool)
	}
	return out, nil
}

// Item is one item of a response's input or of a conversation.
type Item struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   openai.Content  `json:"content"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	CallID    string          `json:"call_id"`
	Output    json.RawMessage `json:"output"`
	raw       json.RawMessage
}

// MaxItems limits the items of a request and of a conversation.
const MaxItems = 4096

// ParseItems parses a list of items, or a single text.
func ParseItems(raw json.RawMessage) ([]Item, *openai.Error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, openai.Invalidf("input", "input: field required, expected a string or a list of items.")
	}
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, openai.Errorf(400, "input", "input: %v.", err)
		}
		return []Item{{Type: "message", Role: "user", Content: openai.Content{Text: text}}}, nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, openai.Errorf(400, "input", "input: expected a string or a list of items.")
	}
	if len(parts) == 0 || len(parts) > MaxItems {
		return nil, openai.Errorf(400, "input", "input: expected 1 to %d items, got %d.", MaxItems, len(parts))
	}
	out := make([]Item, len(parts))
	for i, p := range parts {
		if bad := openai.Decode(p, &out[i]); bad != nil {
			return nil, openai.Errorf(400, "input", "input[%d]: %s", i, bad.Message)
		}
		it := &out[i]
		it.raw = p
		it.Type = cmp.Or(it.Type, "message")
		if it.Type == "message" && it.Role == "" {
			return nil, openai.Invalidf("input", "input[%d].role: field required.", i)
		}
	}
	return out, nil
}

// chatOf appends items to a chat. A tool call belongs to the answer before it. An assistant's text belongs to the turn
// before it if that turn has only calls (vllm/entrypoints/openai/responses/utils.py).
func chatOf(m []openai.Message, items []Item) []openai.Message {
	for i := range items {
		it := &items[i]
		var before *openai.Message
		if n := len(m); n > 0 && m[n-1].Role == "assistant" {
			before = &m[n-1]
		}
		switch {
		case it.Type == "function_call" && before != nil:
			before.ToolCalls = append(slices.Clip(before.ToolCalls), it.call())
		case it.Type == "function_call":
			m = append(m, openai.Message{Role: "assistant", ToolCalls: []openai.ToolCall{it.call()}})
		case it.Type == "function_call_output":
			m = append(m, openai.Message{Role: "tool", Content: it.output(), ToolCallID: it.CallID})
		case it.Role == "assistant" && before != nil && before.Content.Text == "":
			before.Content = it.Content
		case it.Role != "":
			m = append(m, openai.Message{Role: it.Role, Content: it.Content})
		default:
			m = append(m, openai.Message{Role: it.Type, Content: it.Content})
		}
	}
	return m
}

// call returns the tool call that an item contains.
func (it *Item) call() openai.ToolCall {
	c := openai.ToolCall{ID: it.CallID, Type: "function"}
	c.Function.Name, c.Function.Arguments = it.Name, it.Arguments
	return c
}

// output returns a tool's result: a text, or a list of parts.
func (it *Item) output() openai.Content {
	var c openai.Content
	if c.UnmarshalJSON(it.Output) != nil {
		c.Text = string(it.Output)
	}
	return c
}

// StoredResponse is a response that clients may retrieve or continue.
type StoredResponse struct {
	Body     []byte           // as sent to the client
	Messages []openai.Message // the chat including this response
}

// AppendItem appends an item as the client sent it, with its id.
func AppendItem(b []byte, it *Item) []byte {
	fields := map[string]json.RawMessage{}
	if len(it.raw) > 0 {
		_ = json.Unmarshal(it.raw, &fields) // parsed as an object before
	} else {
		fields["content"] = openai.AppendString(nil, it.Content.Text)
		fields["role"] = openai.AppendString(nil, it.Role)
	}
	fields["id"] = openai.AppendString(nil, it.ID)
	fields["type"] = openai.AppendString(nil, it.Type)
	if raw, err := json.Marshal(fields); err == nil {
		b = append(b, raw...)
	}
	return b
}

// The shallow sizes of stored values. Slices may have up to twice the capacity that they use.
var (
	itemBytes    = 2 * int(reflect.TypeFor[Item]().Size())
	messageBytes = 2 * int(reflect.TypeFor[openai.Message]().Size())
	partBytes    = 2 * int(reflect.TypeFor[openai.Part]().Size())
	callBytes    = 2 * int(reflect.TypeFor[openai.ToolCall]().Size())
	stringBytes  = 2 * int(reflect.TypeFor[string]().Size())
)

func contentBytes(c *openai.Content) int {
	n := len(c.Text)
	for _, t := range c.Texts {
		n += stringBytes + len(t)
	}
	for i := range c.Media {
		n += partBytes + len(c.Media[i].Type) + len(c.Media[i].URL)
	}
	return n
}

// Bytes returns the memory that an item of a conversation takes.
func (it *Item) Bytes() int {
	return itemBytes + len(it.ID) + len(it.Type) + len(it.Role) + contentBytes(&it.Content) +
		len(it.Name) + len(it.Arguments) + len(it.CallID) + cap(it.Output) + cap(it.raw)
}

// Bytes returns the memory that a stored response takes.
func (r *StoredResponse) Bytes() int {
	n := cap(r.Body)
	for i := range r.Messages {
		m := &r.Messages[i]
		n += messageBytes + len(m.Role) + contentBytes(&m.Content) + len(m.ToolCallID)
		for k := range m.ToolCalls {
			c := &m.ToolCalls[k]
			n += callBytes + len(c.ID) + len(c.Function.Name) + len(c.Function.Arguments)
		}
	}
	return n
}

// UnknownResponse returns the error for a response that the server does not keep, in vLLM's words. It adds advice,
// which depends on whether the server stores responses.
func UnknownResponse(id string, stores bool) *openai.Error {
	hint := "This server stores no responses; VLLM_ENABLE_RESPONSES_API_STORE=1 (a scenario's " +
		"modelServer.storeResponses) makes it."
	if stores {
		hint = "A server keeps the responses that it made itself: another server of the pool may keep it, so send " +
			"what belongs together to one of them (a session's header, for instance)."
	}
	e := openai.Errorf(404, "response_id", "Response with id '%s' not found. %s", id, hint)
	e.Type = "invalid_request_error"
	return e
}
