package modelserver

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Content types of responses.
const (
	eventStream = "text/event-stream; charset=utf-8"
	jsonType    = "application/json"
)

// contentType returns the content type of an answer in events or in one piece.
func (r *Request) contentType() string {
	if r.Stream {
		return eventStream
	}
	return jsonType
}

// openaiStream encodes streamed /v1/chat/completions and /v1/completions.
type openaiStream struct {
	o            openai.StreamOptions
	s            *openai.Stream
	prompts      [][]uint32 // token ids of each prompt, if the client asked for them
	n            int
	choices      int
	includeUsage bool
	image        bool // every choice ends with a picture
	logprobs     *Logprobs
	delta        openai.Delta
	scratch      []byte
}

func (e *openaiStream) ContentType() string { return eventStream }

func (e *openaiStream) Begin(b []byte, u openai.Usage) []byte {
	e.o.Usage = u
	e.s = openai.NewStream(e.o)
	if !e.o.Chat {
		return b
	}
	for i := range e.choices {
		b = e.s.AppendRole(b, i, e.prompt(i))
	}
	return b
}

func (e *openaiStream) prompt(choice int) []uint32 {
	if e.prompts == nil {
		return nil
	}
	return e.prompts[choice/e.n]
}

func (e *openaiStream) Token(b []byte, t *Token) []byte {
	d := &e.delta
	*d = openai.Delta{Index: t.Choice, Text: t.Text, Reason: t.Done, Stop: t.Stop, StopID: t.StopID,
		Completion: t.Index + 1, Tokens: d.Tokens[:0]}
	if t.None {
		d.Completion = t.Index
	}
	if e.o.ReturnTokenIDs {
		if !t.None {
			d.Tokens = append(d.Tokens, t.ID)
		}
		if t.Index == 0 && !e.o.Chat {
			d.Prompt = e.prompt(t.Choice)
		}
	}
	d.ChoiceExtra = choiceExtra(t)
	e.scratch = e.scratch[:0]
	switch {
	case t.None:
	case t.of.tool != nil && e.o.Chat:
		e.scratch = appendToolDelta(e.scratch, t)
		d.ToolCalls = e.scratch
	case e.logprobs != nil && e.o.Chat:
		e.scratch = append(e.scratch, `{"content":[`...)
		e.scratch = e.logprobs.appendChat(e.scratch, t)
		e.scratch = append(e.scratch, "]}"...)
		d.Logprobs = e.scratch
	case e.logprobs != nil:
		var lists completionLogprobs
		lists.add(e.logprobs, t)
		e.scratch = lists.append(e.scratch)
		d.Logprobs = e.scratch
	}
	if e.image && t.Done != "" && d.ToolCalls == nil {
		return e.appendImage(b, d, t)
	}
	return e.s.AppendDelta(b, d)
}

// imagePart is the picture as a content part of a chat.
const imagePart = `{"type":"image_url","image_url":{"url":"` + onePixel + `"}}`

// appendImage ends a choice: its last text, then the picture in a chunk of its own, then the finish reason.
func (e *openaiStream) appendImage(b []byte, d *openai.Delta, t *Token) []byte {
	end := openai.Delta{Index: d.Index, Reason: d.Reason, Stop: d.Stop, StopID: d.StopID, Completion: d.Completion,
		ChoiceExtra: d.ChoiceExtra}
	if d.Reason, d.Stop, d.StopID, d.ChoiceExtra = "", "", nil, nil; !t.None {
		b = e.s.AppendDelta(b, d)
	}
	b = e.s.AppendDelta(b, &openai.Delta{Index: end.Index, Parts: []byte("[" + imagePart + "]"),
		Completion: end.Completion, Extra: []byte(`,"modality":"image"`)})
	return e.s.AppendDelta(b, &end)
}

// appendToolDelta appends a tool_calls array with one token of the arguments. The first one also names the tool.
func appendToolDelta(b []byte, t *Token) []byte {
	call := t.of.tool
	if t.Index == 0 {
		return openai.Fill(b, `[{"id":$,"type":"function","index":0,"function":{"name":$,"arguments":$}}]`, call.id,
			call.name, t.Text)
	}
	return openai.Fill(b, `[{"index":0,"function":{"arguments":$}}]`, t.Text)
}

func (e *openaiStream) End(b []byte, u openai.Usage, kv, extra []byte) []byte {
	extra = append(kvField(kv), extra...)
	switch {
	case e.includeUsage:
		b = e.s.AppendUsageChunk(b, u, extra)
	case len(extra) > 0:
		b = e.s.AppendExtraChunk(b, extra)
	}
	return append(b, openai.Done...)
}

func (e *openaiStream) Fail(b []byte, err *openai.Error) []byte {
	b = openai.AppendStreamError(b, err)
	return append(b, openai.Done...)
}

func kvField(kv []byte) []byte {
	if kv == nil {
		return nil
	}
	return append([]byte(`,"kv_transfer_params":`), kv...)
}

// openaiWhole encodes responses that are not streamed.
type openaiWhole struct {
	head     openai.Head
	prompts  [][]uint32
	n        int
	tokens   bool // return token ids
	logprobs *Logprobs
	ids      []uint32
	image    bool   // every choice ends with a picture
	encoded  []byte // ec_transfer_params as an encoded field; nil if there are none
	open     int    // choices opened so far
	// promptTop makes each choice, or a whole chat, return log probabilities of the prompt.
	promptTop *int
	said      *content
	inText    bool
	tool      *toolCall
	args      []byte // the arguments of the open choice's tool call
	chatLogs  []byte
	lists     completionLogprobs
}

func (e *openaiWhole) ContentType() string { return jsonType }

func (e *openaiWhole) Begin(b []byte, _ openai.Usage) []byte { return openai.AppendHead(b, e.head) }

func (e *openaiWhole) Token(b []byte, t *Token) []byte {
	if !e.inText {
		if e.image {
			b = openai.AppendChoiceStartParts(b, t.Choice)
		} else {
			b = openai.AppendChoiceStart(b, t.Choice, e.head.Chat)
		}
		e.open, e.inText = t.Choice+1, true
	}
	if t.of != nil { // the end of a choice may come without a token
		e.said = t.of
	}
	if !t.None {
		if t.of.tool != nil {
			e.tool = t.of.tool
			e.args = append(e.args, t.Text...)
		} else {
			b = openai.AppendText(b, t.Text)
		}
		if e.tokens {
			e.ids = append(e.ids, t.ID)
		}
		if e.logprobs != nil {
			e.addLogprobs(t)
		}
	}
	if t.Done != "" {
		b = e.closeChoice(b, &openai.Choice{Reason: t.Done, Stop: t.Stop, StopID: t.StopID, Extra: choiceExtra(t)})
	}
	return b
}

// plain reports whether a choice consists of text alone.
func (e *openaiWhole) plain(c *content) bool {
	return !e.tokens && e.promptTop == nil && !e.image && e.logprobs == nil && c.tool == nil
}

// texts appends tokens of a plain choice, without its last. It does the same as a call of token for each, in one pass.
func (e *openaiWhole) texts(b []byte, c *content, choice, from, upTo int) []byte {
	if from < upTo && !e.inText {
		b = openai.AppendChoiceStart(b, choice, e.head.Chat)
		e.open, e.inText = choice+1, true
	}
	for i := from; i < upTo; i++ {
		b = openai.AppendText(b, c.text(i))
	}
	return b
}

// choiceExtra returns the fields that document 002 (docs/documents.md) adds to a choice.
func choiceExtra(t *Token) []byte {
	if t.kv == nil {
		return nil
	}
	return append([]byte(`,"kv_metadata":`), t.kv...)
}

func (e *openaiWhole) addLogprobs(t *Token) {
	if !e.head.Chat {
		e.lists.add(e.logprobs, t)
		return
	}
	if len(e.chatLogs) > 0 {
		e.chatLogs = append(e.chatLogs, ',')
	}
	e.chatLogs = e.logprobs.appendChat(e.chatLogs, t)
}

func (e *openaiWhole) closeChoice(b []byte, c *openai.Choice) []byte {
	if e.tokens {
		c.Tokens = e.ids
		if !e.head.Chat {
			c.Prompt = e.prompts[(e.open-1)/e.n]
		}
	}
	switch {
	case e.logprobs != nil && e.head.Chat:
		c.Logprobs = append(append([]byte(`{"content":[`), e.chatLogs...), "]}"...)
	case e.logprobs != nil:
		c.Logprobs = e.lists.append(nil)
	}
	if e.promptTop != nil && e.said != nil && !e.head.Chat {
		c.PromptLogprobs = e.said.appendPrompt(nil, *e.promptTop)
	}
	if e.tool != nil {
		c.ToolCalls = appendToolCalls(nil, e.tool, string(e.args))
	}
	if e.image {
		c.Parts = []byte(imagePart)
	}
	b = openai.AppendChoiceEnd(b, c, e.head.Chat)
	e.inText, e.tool, e.args, e.ids, e.chatLogs, e.lists = false, nil, nil, e.ids[:0], nil, completionLogprobs{}
	return b
}

func appendToolCalls(b []byte, call *toolCall, arguments string) []byte {
	return openai.Fill(b, `[{"id":$,"type":"function","function":{"name":$,"arguments":$}}]`, call.id, call.name,
		arguments)
}

func (e *openaiWhole) End(b []byte, u openai.Usage, kv, extra []byte) []byte {
	if e.encoded != nil {
		extra = append(slices.Clip(e.encoded), extra...)
	}
	t := openai.Tail{Usage: u, KVTransferParams: kv, Extra: extra}
	if e.tokens && e.head.Chat {
		t.Prompt = e.prompts[0]
	}
	if e.promptTop != nil && e.said != nil && e.head.Chat {
		t.PromptLogprobs = e.said.appendPrompt(nil, *e.promptTop)
	}
	return openai.AppendTail(b, &t, e.head.Chat)
}

// Fail ends a response that has been sent in part: the open choice ends with an error, and the error takes the place of
// the echo.
func (e *openaiWhole) Fail(b []byte, err *openai.Error) []byte {
	if e.inText {
		b = e.closeChoice(b, &openai.Choice{Reason: openai.FinishError})
	}
	extra := openai.AppendError(nil, err)
	extra[0] = ',' // {"error":…} becomes ,"error":…
	return e.End(b, openai.Usage{}, nil, extra[:len(extra)-1])
}
