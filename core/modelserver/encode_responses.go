package modelserver

import (
	"encoding/json"
	"strconv"

	"github.com/windtunnel/windtunnel/core/openai"
)

// responsesEncoder encodes /v1/responses, streamed as named events or whole.
type responsesEncoder struct {
	stored       Stored
	q            *responsesRequest
	req          *Request
	id           string
	created      int64
	items        []Item // the input
	conversation string
	store        bool

	tool   *toolCall
	text   []byte
	seq    int
	opened bool
	reason openai.FinishReason
}

func (e *responsesEncoder) ContentType() string {
	if e.req.Stream {
		return eventStream
	}
	return jsonType
}

func (e *responsesEncoder) Begin(b []byte, _ openai.Usage) []byte {
	if !e.req.Stream {
		b = e.head(b)
		return append(b, `,"output":[`...)
	}
	for _, name := range []string{"response.created", "response.in_progress"} {
		b = e.event(b, name)
		b = append(b, `,"response":`...)
		b = e.object(b, "in_progress", nil, nil)
		b = append(b, "}\n\n"...)
	}
	return b
}

// event begins a named event with its type and number.
func (e *responsesEncoder) event(b []byte, name string) []byte {
	b = append(b, "event: "...)
	b = append(b, name...)
	b = append(b, "\ndata: {\"type\":\""...)
	b = append(b, name...)
	b = append(b, `","sequence_number":`...)
	b = strconv.AppendInt(b, int64(e.seq), 10)
	e.seq++
	return b
}

func (e *responsesEncoder) messageID() string { return "msg_" + e.id[len("resp_"):] }

func (e *responsesEncoder) Token(b []byte, t *Token) []byte {
	if t.of != nil {
		e.tool = t.of.tool
	}
	if !e.opened {
		e.opened = true
		b = e.open(b)
	}
	if !t.None {
		e.text = append(e.text, t.Text...)
		switch {
		case !e.req.Stream:
			b = openai.AppendText(b, t.Text)
		case e.tool != nil:
			b = e.event(b, "response.function_call_arguments.delta")
			b = append(b, `,"item_id":`...)
			b = openai.AppendString(b, e.tool.id)
			b = append(b, `,"output_index":0,"delta":`...)
			b = openai.AppendString(b, t.Text)
			b = append(b, "}\n\n"...)
		default:
			b = e.event(b, "response.output_text.delta")
			b = append(b, `,"item_id":`...)
			b = openai.AppendString(b, e.messageID())
			b = append(b, `,"output_index":0,"content_index":0,"logprobs":[],"delta":`...)
			b = openai.AppendString(b, t.Text)
			b = append(b, "}\n\n"...)
		}
	}
	if t.Done != "" {
		e.reason = t.Done
		b = e.close(b)
	}
	return b
}

// open begins the output item.
func (e *responsesEncoder) open(b []byte) []byte {
	if !e.req.Stream {
		if e.tool != nil {
			b = append(b, `{"id":`...)
			b = openai.AppendString(b, e.tool.id)
			b = append(b, `,"type":"function_call","call_id":`...)
			b = openai.AppendString(b, "call_"+e.tool.id)
			b = append(b, `,"name":`...)
			b = openai.AppendString(b, e.tool.name)
			return append(b, `,"arguments":"`...)
		}
		b = append(b, `{"id":`...)
		b = openai.AppendString(b, e.messageID())
		return append(b, `,"type":"message","role":"assistant","content":[{"type":"output_text","annotations":[],`+
			`"logprobs":null,"text":"`...)
	}
	b = e.event(b, "response.output_item.added")
	b = append(b, `,"output_index":0,"item":`...)
	b = e.item(b, "in_progress", nil)
	b = append(b, "}\n\n"...)
	if e.tool != nil {
		return b
	}
	b = e.event(b, "response.content_part.added")
	b = append(b, `,"item_id":`...)
	b = openai.AppendString(b, e.messageID())
	b = append(b, `,"output_index":0,"content_index":0,"part":`...)
	b = appendOutputText(b, nil)
	return append(b, "}\n\n"...)
}

// close ends the output item.
func (e *responsesEncoder) close(b []byte) []byte {
	if !e.req.Stream {
		if e.tool != nil {
			return append(append(append(b, `","status":"`...), e.itemStatus()...), `"}`...)
		}
		return append(b, `"}],"status":"completed"}`...)
	}
	if e.tool != nil {
		b = e.event(b, "response.function_call_arguments.done")
		b = append(b, `,"item_id":`...)
		b = openai.AppendString(b, e.tool.id)
		b = append(b, `,"output_index":0,"name":`...)
		b = openai.AppendString(b, e.tool.name)
		b = append(b, `,"arguments":`...)
		b = openai.AppendString(b, string(e.text))
		b = append(b, "}\n\n"...)
	} else {
		b = e.event(b, "response.output_text.done")
		b = append(b, `,"item_id":`...)
		b = openai.AppendString(b, e.messageID())
		b = append(b, `,"output_index":0,"content_index":0,"logprobs":[],"text":`...)
		b = openai.AppendString(b, string(e.text))
		b = append(b, "}\n\n"...)
		b = e.event(b, "response.content_part.done")
		b = append(b, `,"item_id":`...)
		b = openai.AppendString(b, e.messageID())
		b = append(b, `,"output_index":0,"content_index":0,"part":`...)
		b = appendOutputText(b, e.text)
		b = append(b, "}\n\n"...)
	}
	b = e.event(b, "response.output_item.done")
	b = append(b, `,"output_index":0,"item":`...)
	b = e.item(b, e.itemStatus(), e.text)
	return append(b, "}\n\n"...)
}

func appendOutputText(b, text []byte) []byte {
	b = append(b, `{"type":"output_text","annotations":[],"logprobs":null,"text":`...)
	b = openai.AppendString(b, string(text))
	return append(b, '}')
}

// item appends the output item as it is now.
func (e *responsesEncoder) item(b []byte, status string, text []byte) []byte {
	if e.tool != nil {
		b = append(b, `{"id":`...)
		b = openai.AppendString(b, e.tool.id)
		b = append(b, `,"type":"function_call","call_id":`...)
		b = openai.AppendString(b, "call_"+e.tool.id)
		b = append(b, `,"name":`...)
		b = openai.AppendString(b, e.tool.name)
		b = append(b, `,"arguments":`...)
		b = openai.AppendString(b, string(text))
	} else {
		b = append(b, `{"id":`...)
		b = openai.AppendString(b, e.messageID())
		b = append(b, `,"type":"message","role":"assistant","content":[`...)
		if text != nil {
			b = appendOutputText(b, text)
		}
		b = append(b, ']')
	}
	b = append(b, `,"status":"`...)
	b = append(b, status...)
	return append(b, `"}`...)
}

// itemStatus is that of the output item: a call whose arguments were cut is none
// to carry out.
func (e *responsesEncoder) itemStatus() string {
	if e.tool != nil {
		return e.status()
	}
	return "completed"
}

func (e *responsesEncoder) status() string {
	if e.reason == openai.FinishLength {
		return "incomplete"
	}
	return "completed"
}

func (e *responsesEncoder) End(b []byte, u openai.Usage, kv, extra []byte) []byte {
	e.keep(u)
	if e.req.Stream {
		name := "response." + e.status()
		b = e.event(b, name)
		b = append(b, `,"response":`...)
		b = e.object(b, e.status(), &u, nil)
		b = append(b, extra...)
		return append(b, "}\n\n"...)
	}
	b = append(b, ']')
	b = e.tail(b, e.status(), &u, nil, len(extra) > 0)
	b = append(b, kvField(kv)...)
	b = append(b, extra...)
	return append(b, '}')
}

func (e *responsesEncoder) Fail(b []byte, err *openai.Error) []byte {
	if e.req.Stream {
		b = e.event(b, "response.failed")
		b = append(b, `,"response":`...)
		b = e.object(b, "failed", nil, err)
		whole := openai.AppendError(nil, err)
		b = append(b, ',')
		b = append(b, whole[1:]...)
		return append(b, "\n\n"...)
	}
	if e.opened && e.reason == "" {
		b = e.close(b)
	}
	b = append(b, ']')
	b = e.tail(b, "failed", nil, err, false)
	return append(b, '}')
}

// head opens the response object.
func (e *responsesEncoder) head(b []byte) []byte {
	b = append(b, `{"id":`...)
	b = openai.AppendString(b, e.id)
	b = append(b, `,"object":"response","created_at":`...)
	b = strconv.AppendInt(b, e.created, 10)
	b = append(b, `,"model":`...)
	return openai.AppendString(b, e.req.Model)
}

// tail appends the fields behind the output. A held request's echo takes the
// place of the client's own metadata.
func (e *responsesEncoder) tail(b []byte, status string, u *openai.Usage, err *openai.Error, echoed bool) []byte {
	q := e.q
	b = append(b, `,"status":"`...)
	b = append(b, status...)
	b = append(b, `","background":false,"error":`...)
	if err == nil {
		b = append(b, "null"...)
	} else {
		whole := openai.AppendError(nil, err)
		b = append(b, whole[len(`{"error":`):len(whole)-1]...)
	}
	b = append(b, `,"incomplete_details":`...)
	if status == "incomplete" {
		b = append(b, `{"reason":"max_output_tokens"}`...)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"instructions":`...)
	b = appendStringOrNull(b, q.Instructions)
	b = append(b, `,"max_output_tokens":`...)
	if q.MaxTokens == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(*q.MaxTokens), 10)
	}
	b = append(b, `,"parallel_tool_calls":true,"previous_response_id":`...)
	b = appendStringOrNull(b, q.Previous)
	b = append(b, `,"conversation":`...)
	if e.conversation == "" {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"id":`...)
		b = append(openai.AppendString(b, e.conversation), '}')
	}
	b = append(b, `,"reasoning":null,"service_tier":"auto","store":`...)
	b = strconv.AppendBool(b, e.store)
	b = append(b, `,"temperature":`...)
	b = appendNumberOr(b, q.Temperature, 1)
	b = append(b, `,"text":`...)
	if b = append(b, q.Text...); len(q.Text) == 0 {
		b = append(b, "null"...)
	}
	b = append(b, `,"tool_choice":`...)
	switch q.ToolChoice.Mode {
	case "":
		b = append(b, `"auto"`...)
	case "function":
		b = append(b, `{"type":"function","name":`...)
		b = append(openai.AppendString(b, q.ToolChoice.Name), '}')
	default:
		b = openai.AppendString(b, q.ToolChoice.Mode)
	}
	b = append(b, `,"tools":`...)
	if raw, jerr := json.Marshal(q.Tools); jerr == nil && q.Tools != nil {
		b = append(b, raw...)
	} else {
		b = append(b, "[]"...)
	}
	b = append(b, `,"top_p":`...)
	b = appendNumberOr(b, q.TopP, 1)
	b = append(b, `,"truncation":"disabled","usage":`...)
	if u == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"input_tokens":`...)
		b = strconv.AppendInt(b, int64(u.PromptTokens), 10)
		b = append(b, `,"input_tokens_details":{"cached_tokens":`...)
		b = strconv.AppendInt(b, int64(u.CachedTokens), 10)
		b = append(b, `},"output_tokens":`...)
		b = strconv.AppendInt(b, int64(u.CompletionTokens), 10)
		b = append(b, `,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":`...)
		b = strconv.AppendInt(b, int64(u.PromptTokens+u.CompletionTokens), 10)
		b = append(b, '}')
	}
	if !echoed {
		b = append(b, `,"metadata":`...)
		if len(q.Metadata) == 0 {
			b = append(b, "{}"...)
		} else {
			b = append(b, q.Metadata...)
		}
	}
	return b
}

// object appends the whole response object.
func (e *responsesEncoder) object(b []byte, status string, u *openai.Usage, err *openai.Error) []byte {
	b = e.head(b)
	b = append(b, `,"output":[`...)
	if u != nil {
		b = e.item(b, e.itemStatus(), e.text)
	}
	b = append(b, ']')
	return append(e.tail(b, status, u, err, false), '}')
}

// keep stores the response and adds it to its conversation.
func (e *responsesEncoder) keep(u openai.Usage) {
	output := Item{Type: "message", Role: "assistant", Content: openai.Content{Text: string(e.text)}}
	if e.tool != nil {
		output = Item{Type: "function_call", Name: e.tool.name, Arguments: string(e.text), CallID: "call_" + e.tool.id}
	}
	output.raw = e.item(nil, e.itemStatus(), e.text)
	if e.conversation != "" {
		e.stored.Continue(e.conversation, append(append([]Item(nil), e.items...), output))
	}
	if !e.store || e.req.KV.Keep { // the whole one is the decode server's
		return
	}
	kept := &StoredResponse{Body: e.object(nil, e.status(), &u, nil)}
	if e.q.Previous != "" {
		before, _ := e.stored.Response(e.q.Previous) // it may have gone since
		kept.Messages = append(kept.Messages, before...)
	}
	kept.Messages = chatOf(chatOf(kept.Messages, e.items), []Item{output})
	e.stored.KeepResponse(e.id, kept)
}

func appendStringOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return openai.AppendString(b, s)
}

func appendNumberOr(b []byte, v *float64, otherwise float64) []byte {
	if v != nil {
		otherwise = *v
	}
	return strconv.AppendFloat(b, otherwise, 'g', -1, 64)
}
