package openai

import "strconv"

// Head is what begins a whole response.
type Head struct {
	ID      string
	Model   string
	Created int64 // Unix seconds
	Chat    bool
}

// AppendHead appends a whole response up to and with the opening of its first
// choice's text. What follows is the text, by AppendText, and AppendChoiceEnd.
// A held-open request's first token leaves behind this head while the rest is
// still to come.
func AppendHead(b []byte, h Head) []byte {
	return Fill(b, `{"id":$,"object":$,"created":$,"model":$,"choices":[`, h.ID, object(h.Chat, "chat.completion"),
		h.Created, h.Model)
}

// object is what a response or a chunk is called: of a chat as given.
func object(chat bool, name string) string {
	if chat {
		return name
	}
	return "text_completion"
}

// AppendChoiceStart opens a choice up to the inside of its text.
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

// AppendChoiceStartParts opens a chat choice whose content is a list of parts,
// up to the inside of its first, a text. Choice.Parts are the others.
func AppendChoiceStartParts(b []byte, index int) []byte {
	b = AppendChoiceStart(b, index, true)
	return append(b[:len(b)-1], `[{"type":"text","text":"`...)
}

// AppendText appends text inside a choice.
func AppendText(b []byte, text string) []byte { return appendEscaped(b, text) }

// Choice is what a whole response says of a choice beside its text.
type Choice struct {
	Reason    FinishReason
	Stop      string
	StopID    *uint32
	Parts     []byte   // encoded content parts behind the text, without brackets; nil for none
	ToolCalls []byte   // encoded array; nil for none
	Logprobs  []byte   // encoded object; nil for null
	Tokens    []uint32 // told when not nil
	Prompt    []uint32 // completions only, told when not nil
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

// Tail is what ends a whole response.
type Tail struct {
	Usage            Usage
	Prompt           []uint32 // chat only, told when not nil
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

// AppendOrNull appends JSON that is encoded already, and null for nil.
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
