package modelserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/windtunnel/windtunnel/core/apierror"
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
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	ToolChoice struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"tool_choice"`
	KV json.RawMessage `json:"kv_transfer_params"`
}

type messagesTurn struct {
	Role    string          `json:"role"`
	Content messagesContent `json:"content"`
}

// messagesContent is a string or a list of blocks; what counts here is the
// text of it.
type messagesContent string

func (c *messagesContent) UnmarshalJSON(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	if raw[0] != '[' {
		var s *string
		if err := json.Unmarshal(raw, &s); err != nil {
			return openai.Errorf(400, "messages", "messages.content: expected a string or a list of blocks.")
		}
		if s != nil {
			*c = messagesContent(*s)
		}
		return nil
	}
	var blocks []struct {
		Type    string          `json:"type"`
		Text    string          `json:"text"`
		Name    string          `json:"name"`
		Input   json.RawMessage `json:"input"`
		Content messagesContent `json:"content"`
	}
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return err
	}
	for i, b := range blocks {
		if i > 0 {
			*c += "\n"
		}
		switch b.Type {
		case "text":
			*c += messagesContent(b.Text)
		case "tool_use":
			*c += messagesContent(b.Name + "(" + string(b.Input) + ")")
		case "tool_result":
			*c += b.Content
		}
	}
	return nil
}

// chat is the request as turns of a chat.
func (q *messagesRequest) chat() []openai.Message {
	var out []openai.Message
	if q.System != "" {
		out = append(out, openai.Message{Role: "system", Content: openai.Content{Text: string(q.System)}})
	}
	for _, m := range q.Messages {
		out = append(out, openai.Message{Role: m.Role, Content: openai.Content{Text: string(m.Content)}})
	}
	return out
}

// prepareMessages reads /v1/messages.
func prepareMessages(s *Server, r *http.Request, body []byte) (*request, *openai.Error) {
	q := new(messagesRequest)
	if bad := openai.Decode(body, q); bad != nil {
		return nil, bad
	}
	switch {
	case len(q.Messages) == 0:
		return nil, openai.Errorf(400, "messages", "messages: expected at least one message.")
	case q.MaxTokens == nil:
		return nil, openai.Errorf(400, "max_tokens", "max_tokens: field required.")
	case *q.MaxTokens < 1:
		return nil, openai.Errorf(400, "max_tokens", "max_tokens must be at least 1, got %d.", *q.MaxTokens)
	}
	p := openai.Sampling{Model: q.Model, Stop: q.Stops, Temperature: q.Temp, TopP: q.TopP, TopK: q.TopK, KVTransferParams: q.KV}
	if bad := p.Check(); bad != nil {
		return nil, bad
	}
	key := requestIDOf(r, &p)
	text := s.chatText(q.chat(), nil)
	req := &request{key: key, id: "msg_" + key, n: 1, stream: q.Stream, prompts: []prompt{{text: text, tokens: s.tokenize(text)}},
		echoText: string(q.Messages[len(q.Messages)-1].Content)}
	if bad := s.fill(req, &p, *q.MaxTokens, true); bad != nil {
		return nil, bad
	}
	for _, t := range q.Tools {
		var tool openai.Tool
		tool.Type, tool.Function.Name, tool.Function.Parameters = "function", t.Name, t.Schema
		req.tools = append(req.tools, tool)
	}
	req.toolChoice = openai.ToolChoice{Mode: q.ToolChoice.Type, Name: q.ToolChoice.Name}
	switch q.ToolChoice.Type {
	case "any":
		req.toolChoice.Mode = "required"
	case "tool":
		req.toolChoice.Mode = "function"
	}
	req.enc = &messagesEncoder{req: req}
	return req, nil
}

// countTokens answers POST /v1/messages/count_tokens.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	body, ok := s.readBody(w, r)
	if !ok {
		return
	}
	var q messagesRequest
	if bad := openai.Decode(body, &q); bad != nil {
		writeWhole(w, bad.Status, jsonType, appendMessagesError(nil, bad))
		return
	}
	b := strconv.AppendInt([]byte(`{"input_tokens":`), int64(len(s.tokenize(s.chatText(q.chat(), nil)))), 10)
	writeWhole(w, http.StatusOK, jsonType, append(b, '}'))
}

// appendMessagesError appends an error in Anthropic's form.
func appendMessagesError(b []byte, e *openai.Error) []byte {
	b = append(b, `{"type":"error","error":{"type":"`...)
	b = append(b, apierror.Of(e.Status).Anthropic...)
	b = append(b, `","message":`...)
	b = openai.AppendString(b, e.Message)
	return append(b, "}}"...)
}

// messagesEncoder encodes /v1/messages.
type messagesEncoder struct {
	req     *request
	prompt  int
	opened  bool
	tool    *toolCall
	reason  openai.FinishReason
	stopped string
}

func (e *messagesEncoder) contentType() string {
	if e.req.stream {
		return eventStream
	}
	return jsonType
}

func (e *messagesEncoder) begin(b []byte, u openai.Usage) []byte {
	e.prompt = u.PromptTokens
	if e.req.stream {
		b = append(b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	}
	b = append(b, `{"id":`...)
	b = openai.AppendString(b, e.req.id)
	b = append(b, `,"type":"message","role":"assistant","model":`...)
	b = openai.AppendString(b, e.req.model)
	b = append(b, `,"content":[`...)
	if e.req.stream {
		b = append(b, `],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":`...)
		b = strconv.AppendInt(b, int64(u.PromptTokens), 10)
		b = append(b, `,"output_tokens":0}}}`+"\n\n"...)
	}
	return b
}

func (e *messagesEncoder) token(b []byte, t *token) []byte {
	if t.of != nil {
		e.tool = t.of.tool
	}
	if !e.opened {
		e.opened = true
		b = e.open(b)
	}
	if !t.none {
		switch {
		case e.req.stream && e.tool != nil:
			b = append(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":"...)
			b = append(openai.AppendString(b, t.text), "}}\n\n"...)
		case e.req.stream:
			b = append(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":"...)
			b = append(openai.AppendString(b, t.text), "}}\n\n"...)
		case e.tool != nil:
			b = append(b, t.text...) // the arguments stand as an object
		default:
			b = openai.AppendText(b, t.text)
		}
	}
	if t.done != "" {
		e.reason, e.stopped = t.done, t.stop
		b = e.close(b)
	}
	return b
}

func (e *messagesEncoder) open(b []byte) []byte {
	if e.req.stream {
		b = append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":"...)
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
	case e.req.stream:
		return append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"...)
	case e.tool != nil:
		return append(b, '}')
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

func (e *messagesEncoder) end(b []byte, u openai.Usage, kv, extra []byte) []byte {
	if e.req.stream {
		b = append(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
		b = e.stop(b)
		b = append(b, `},"usage":{"input_tokens":`...)
		b = strconv.AppendInt(b, int64(u.PromptTokens), 10)
		b = field(b, "output_tokens", u.CompletionTokens)
		b = append(b, "}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\""...)
		b = append(b, extra...)
		return append(b, "}\n\n"...)
	}
	b = append(b, "],"...)
	b = e.stop(b)
	b = append(b, `,"usage":{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(u.PromptTokens), 10)
	b = field(b, "output_tokens", u.CompletionTokens)
	b = append(b, '}')
	b = append(b, kvField(kv)...)
	b = append(b, extra...)
	return append(b, '}')
}

func (e *messagesEncoder) fail(b []byte, err *openai.Error) []byte {
	if e.req.stream {
		b = append(b, "event: error\ndata: "...)
		b = appendMessagesError(b, err)
		return append(b, "\n\n"...)
	}
	if e.opened && e.reason == "" {
		if e.tool != nil {
			b = append(b, "null"...)
		}
		b = e.close(b)
	}
	b = append(b, `],`...)
	whole := openai.AppendError(nil, err)
	return append(b, whole[1:]...)
}
