package openai

import "strconv"

// Head holds the values at the beginning of a whole response.
type Head struct {
	ID      string
	Model   string
	Created int64 // Unix seconds
	Chat    bool
}

// AppendHead appends a whole response up to and with the opening of its first choice's text. AppendText and
// AppendChoiceEnd continue it. A server can send the head with a request's first token and the rest later.
func AppendHead(b []byte, h Head) []byte {
	return Fill(b, `{"id":$,"object":$,"created":$,"model":$,"choices":[`, h.ID, object(h.Chat, "chat.completion"),
		h.Created, h.Model)
}

// object returns the object type of a response or a chunk. A chat has the given one.
func object(chat bool, name string) string {
	if chat {
		return name
	}
	return "text_completion"
}

// AppendChoiceStart opens a choice, up to the inside of its text.
func AppendChoiceStart(b []byte, index int, chat bool) []byte {
	if index > 0 {
		b = append(b, ',')
	}
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(index), 10)
	if chat {
		return append(b, `,"message":{"role":"assistant","content":"`...)
	}
	return append(b, `,"text":"`...)
}

// AppendChoiceStartParts opens a chat choice whose content is a list of parts, up to the inside of its first part, a
// text. Choice.Parts holds the others.
func AppendChoiceStartParts(b []byte, index int) []byte {
	b = AppendChoiceStart(b, index, true)
	return append(b[:len(b)-1], `[{"type":"text","text":"`...)
}

// AppendText appends text inside the open choice.
func AppendText(b []byte, text string) []byte { return appendEscaped(b, text) }

// Choice holds the values of a choice in a whole response, beside its text.
type Choice struct {
	Reason    FinishReason
	Stop      string
	StopID    *uint32
	Parts     []byte   // encoded content parts after the text, without brackets; nil for none
	ToolCalls []byte   // encoded array; nil for none
	Logprobs  []byte   // encoded object; nil for null
	Tokens    []uint32 // left out when nil
	Prompt    []uint32 // completions only, left out when nil
	// PromptLogprobs is an encoded list; nil for null. Completions only.
	PromptLogprobs []byte
	Extra          []byte // appended to the choice: `,"name":value`
}

// AppendChoiceEnd closes the choice's text and the choice.
func AppendChoiceEnd(b []byte, c *Choice, chat bool) []byte {
	b = append(b, '"')
	if c.Parts != nil {
		b = append(b, "},"...)
		b = append(append(b, c.Parts...), ']')
	}
	if chat {
		b = append(b, `,"refusal":null,"annotations":null,"audio":null,"function_call":null`...)
		if c.ToolCalls != nil {
			b = Fill(b, `,"tool_calls":$`, c.ToolCalls)
		}
		b = append(b, `,"reasoning":null}`...)
	}
	b = Fill(b, `,"logprobs":$,"finish_reason":$,"stop_reason":$,"token_ids":$`, c.Logprobs, c.Reason,
		appendStopReason(nil, c.Stop, c.StopID), c.Tokens)
	if !chat {
		b = Fill(b, `,"prompt_logprobs":$,"prompt_token_ids":$`, c.PromptLogprobs, c.Prompt)
	}
	b = append(b, c.Extra...)
	return append(b, '}')
}

// Tail holds the values at the end of a whole response.
type Tail struct {
	Usage            Usage
	Prompt           []uint32 // chat only, left out when nil
	KVTransferParams []byte   // encoded object; nil for null
	PromptLogprobs   []byte   // chat only: an encoded list; nil for null
	// Extra is appended to the response's top level: `,"name":value`.
	Extra []byte
}

// AppendTail closes the choices and the response.
func AppendTail(b []byte, t *Tail, chat bool) []byte {
	b = append(b, `],"service_tier":null,"system_fingerprint":null,"usage":`...)
	b = AppendUsage(b, t.Usage, true)
	if chat {
		b = Fill(b, `,"prompt_logprobs":$,"prompt_token_ids":$`, t.PromptLogprobs, t.Prompt)
	}
	b = Fill(b, `,"kv_transfer_params":$`, t.KVTransferParams)
	b = append(b, t.Extra...)
	return append(b, '}')
}

// AppendOrNull appends encoded JSON, or null where raw is nil.
func AppendOrNull(b, raw []byte) []byte {
	if raw == nil {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

func appendTokensOrNull(b []byte, tokens []uint32) []byte {
	if tokens == nil {
		return append(b, "null"...)
	}
	return AppendTokens(b, tokens)
}
