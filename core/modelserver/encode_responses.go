package modelserver

import (
	"cmp"
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/wire/openai"
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

func (e *responsesEncoder) ContentType() string { return e.req.contentType() }

func (e *responsesEncoder) Begin(b []byte, _ openai.Usage) []byte {
	if !e.req.Stream {
		return append(e.head(b), `,"output":[`...)
	}
	for _, name := range []string{"response.created", "response.in_progress"} {
		b = e.event(b, name, `"response":$`, e.object("in_progress", nil, nil))
	}
	return b
}

// event appends a named event with its type, its sequence number and fields.
func (e *responsesEncoder) event(b []byte, name, fields string, values ...any) []byte {
	b = append(append(b, "event: "...), name...)
	b = openai.Fill(b, "\ndata: "+`{"type":$,"sequence_number":$,`, name, e.seq)
	e.seq++
	return append(openai.Fill(b, fields, values...), "}\n\n"...)
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
			b = e.event(b, "response.function_call_arguments.delta", `"item_id":$,"output_index":0,"delta":$`,
				e.tool.id, t.Text)
		default:
			b = e.event(b, "response.output_text.delta", textPart+`"logprobs":[],"delta":$`, e.messageID(), t.Text)
		}
	}
	if t.Done != "" {
		e.reason = t.Done
		b = e.close(b)
	}
	return b
}

// The beginnings of three encoded objects: an event about the text of the output item, an output item that is a tool
// call or a text, and the text part of such an item.
const (
	textPart    = `"item_id":$,"output_index":0,"content_index":0,`
	callItem    = `{"id":$,"type":"function_call","call_id":$,"name":$,"arguments":`
	messageItem = `{"id":$,"type":"message","role":"assistant","content":[`
	outputText  = `{"type":"output_text","annotations":[],"logprobs":null,"text":`
)

// open begins the output item.
func (e *responsesEncoder) open(b []byte) []byte {
	switch {
	case !e.req.Stream && e.tool != nil:
		return append(openai.Fill(b, callItem, e.tool.id, "call_"+e.tool.id, e.tool.name), '"')
	case !e.req.Stream:
		return append(openai.Fill(b, messageItem+outputText, e.messageID()), '"')
	}
	b = e.event(b, "response.output_item.added", `"output_index":0,"item":$`, e.item("in_progress", nil))
	if e.tool != nil {
		return b
	}
	return e.event(b, "response.content_part.added", textPart+`"part":`+outputText+`""}`, e.messageID())
}

// close ends the output item.
func (e *responsesEncoder) close(b []byte) []byte {
	text := string(e.text)
	switch {
	case !e.req.Stream && e.tool != nil:
		return openai.Fill(b, `","status":$}`, e.itemStatus())
	case !e.req.Stream:
		return append(b, `"}],"status":"completed"}`...)
	case e.tool != nil:
		b = e.event(b, "response.function_call_arguments.done", `"item_id":$,"output_index":0,"name":$,"arguments":$`,
			e.tool.id, e.tool.name, text)
	default:
		b = e.event(b, "response.output_text.done", textPart+`"logprobs":[],"text":$`, e.messageID(), text)
		b = e.event(b, "response.content_part.done", textPart+`"part":`+outputText+`$}`, e.messageID(), text)
	}
	return e.event(b, "response.output_item.done", `"output_index":0,"item":$`, e.item(e.itemStatus(), e.text))
}

// item returns the output item as it is now.
func (e *responsesEncoder) item(status string, text []byte) []byte {
	switch {
	case e.tool != nil:
		return openai.Fill(nil, callItem+`$,"status":$}`, e.tool.id, "call_"+e.tool.id, e.tool.name, string(text),
			status)
	case text == nil:
		return openai.Fill(nil, messageItem+`],"status":$}`, e.messageID(), status)
	}
	return openai.Fill(nil, messageItem+outputText+`$}],"status":$}`, e.messageID(), string(text), status)
}

// itemStatus returns the status of the output item. A call whose arguments were truncated is incomplete: the client
// must not run it.
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
		return e.event(b, "response."+e.status(), `"response":$`+string(extra), e.object(e.status(), &u, nil))
	}
	b = e.tail(append(b, ']'), e.status(), &u, nil)
	return append(append(append(b, kvField(kv)...), extra...), '}')
}

func (e *responsesEncoder) Fail(b []byte, err *openai.Error) []byte {
	if e.req.Stream {
		return e.event(b, "response.failed", `"response":$,"error":$`, e.object("failed", nil, err),
			openai.ErrorInfo(err))
	}
	if e.opened && e.reason == "" {
		b = e.close(b)
	}
	return append(e.tail(append(b, ']'), "failed", nil, err), '}')
}

// head opens the response object.
func (e *responsesEncoder) head(b []byte) []byte {
	return openai.Fill(b, `{"id":$,"object":"response","created_at":$,"model":$`, e.id, e.created, e.req.Model)
}

// tail appends the fields after the output.
func (e *responsesEncoder) tail(b []byte, status string, u *openai.Usage, err *openai.Error) []byte {
	q := e.q
	var failed, incomplete, usage, conversation, most any
	if err != nil {
		failed = openai.ErrorInfo(err)
	}
	if status == "incomplete" {
		incomplete = []byte(`{"reason":"max_output_tokens"}`)
	}
	if q.MaxTokens != nil {
		most = *q.MaxTokens
	}
	if e.conversation != "" {
		conversation = openai.Fill(nil, `{"id":$}`, e.conversation)
	}
	if u != nil {
		usage = openai.Fill(nil, `{"input_tokens":$,"input_tokens_details":{"cached_tokens":$},"output_tokens":$,`+
			`"output_tokens_details":{"reasoning_tokens":0},"total_tokens":$}`, u.PromptTokens, u.CachedTokens,
			u.CompletionTokens, u.PromptTokens+u.CompletionTokens)
	}
	choice := openai.Fill(nil, "$", cmp.Or(q.ToolChoice.Mode, "auto"))
	if q.ToolChoice.Mode == "function" {
		choice = openai.Fill(nil, `{"type":"function","name":$}`, q.ToolChoice.Name)
	}
	tools, bad := json.Marshal(q.Tools)
	if bad != nil || q.Tools == nil {
		tools = []byte("[]")
	}
	metadata := []byte("{}")
	if len(q.Metadata) > 0 {
		metadata, _ = json.Marshal(q.Metadata) // strings always encode
	}
	return openai.Fill(b, `,"status":$,"background":false,"error":$,"incomplete_details":$,"instructions":$,`+
		`"max_output_tokens":$,"parallel_tool_calls":true,"previous_response_id":$,"conversation":$,"reasoning":null,`+
		`"service_tier":"auto","store":$,"temperature":$,"text":$,"tool_choice":$,"tools":$,"top_p":$,`+
		`"truncation":"disabled","usage":$,"metadata":$`,
		status, failed, incomplete, openai.OrNull(q.Instructions), most, openai.OrNull(q.Previous), conversation,
		e.store, or(q.Temperature, 1), []byte(q.Text), choice, tools, or(q.TopP, 1), usage, metadata)
}

// object returns the whole response object.
func (e *responsesEncoder) object(status string, u *openai.Usage, err *openai.Error) []byte {
	b := append(e.head(nil), `,"output":[`...)
	if u != nil {
		b = append(b, e.item(e.itemStatus(), e.text)...)
	}
	return append(e.tail(append(b, ']'), status, u, err), '}')
}

// keep stores the response and appends it to its conversation.
func (e *responsesEncoder) keep(u openai.Usage) {
	output := Item{Type: "message", Role: "assistant", Content: openai.Content{Text: string(e.text)}}
	if e.tool != nil {
		output = Item{Type: "function_call", Name: e.tool.name, Arguments: string(e.text), CallID: "call_" + e.tool.id}
	}
	output.raw = e.item(e.itemStatus(), e.text)
	if e.conversation != "" {
		e.stored.Continue(e.conversation, append(append([]Item(nil), e.items...), output))
	}
	if !e.store || e.req.KV.Keep { // the decode server stores the whole response
		return
	}
	kept := &StoredResponse{Body: e.object(e.status(), &u, nil)}
	if e.q.Previous != "" {
		before, _ := e.stored.Response(e.q.Previous) // the server may have dropped it since
		kept.Messages = append(kept.Messages, before...)
	}
	kept.Messages = chatOf(chatOf(kept.Messages, e.items), []Item{output})
	e.stored.KeepResponse(e.id, kept)
}

// or returns the value of an optional number, or its default.
func or(v *float64, otherwise float64) float64 {
	if v != nil {
		return *v
	}
	return otherwise
}
