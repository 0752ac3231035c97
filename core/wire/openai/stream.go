package openai

import "strconv"

// Stream encodes the SSE chunks of one streamed response of /v1/chat/completions or /v1/completions. NewStream encodes
// the part that all chunks share once. A Stream is not safe for concurrent use.
type Stream struct {
	head       []byte // data: {"id":… up to and with "choices":[
	chat       bool
	tokenIDs   bool // return_token_ids
	continuous bool // stream_options.continuous_usage_stats
	usage      Usage
}

// StreamOptions holds the values that all chunks of a stream share.
type StreamOptions struct {
	ID      string
	Model   string
	Created int64 // Unix seconds
	Chat    bool
	// ContinuousUsage puts the usage so far into every chunk.
	ContinuousUsage bool
	// ReturnTokenIDs puts token ids into every chunk.
	ReturnTokenIDs bool
	// Usage holds the counts known when the stream begins: the prompt's.
	Usage Usage
}

// NewStream encodes the common part of the chunks.
func NewStream(o StreamOptions) *Stream {
	b := Fill(make([]byte, 0, 160+len(o.ID)+len(o.Model)),
		`data: {"id":$,"object":$,"created":$,"model":$,"choices":[`, o.ID, object(o.Chat, "chat.completion.chunk"),
		o.Created, o.Model)
	return &Stream{head: b, chat: o.Chat, tokenIDs: o.ReturnTokenIDs, continuous: o.ContinuousUsage, usage: o.Usage}
}

// Delta holds what one chunk adds to one choice.
type Delta struct {
	Index int
	Text  string
	// Reason ends the choice. It is empty while the choice continues.
	Reason FinishReason
	// Stop is the stop string that ended the choice, StopID the stop token.
	Stop   string
	StopID *uint32
	// Tokens are the chunk's token ids. Chunks have them where the stream returns token ids.
	Tokens []uint32
	// Prompt holds the prompt's token ids. A completion's first chunk has them where the stream returns token ids.
	Prompt []uint32
	// Completion counts the choice's tokens so far, for continuous usage.
	Completion int
	// Logprobs is the encoded logprobs object; nil is null.
	Logprobs []byte
	// ToolCalls is the encoded tool_calls array of a chat delta. A delta with tool calls has no Text.
	ToolCalls []byte
	// Parts is the encoded list of content parts of a chat delta. It replaces Text.
	Parts []byte
	// ChoiceExtra is appended to the choice, Extra to the chunk's top level:
	// `,"name":value`.
	ChoiceExtra, Extra []byte
}

// AppendRole appends a chat choice's first chunk, with the role and an empty content. The chunk has promptTokens where
// the stream returns token ids.
func (s *Stream) AppendRole(b []byte, index int, promptTokens []uint32) []byte {
	b = append(b, s.head...)
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(index), 10)
	b = append(b, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	if s.continuous {
		b = append(b, `,"usage":`...)
		b = AppendUsage(b, Usage{PromptTokens: s.usage.PromptTokens}, false)
	}
	b = s.appendTokens(append(b, `,"prompt_token_ids":`...), promptTokens)
	return append(b, "}\n\n"...)
}

// appendTokens appends a list of token ids, or null where the client did not ask for them (return_token_ids).
func (s *Stream) appendTokens(b []byte, tokens []uint32) []byte {
	if !s.tokenIDs {
		return append(b, "null"...)
	}
	return AppendTokens(b, tokens)
}

// AppendDelta appends one chunk. The usual chunk, with only a token's text, costs three copies and one escape.
func (s *Stream) AppendDelta(b []byte, d *Delta) []byte {
	b = append(b, s.head...)
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(d.Index), 10)
	if s.chat {
		switch {
		case d.ToolCalls != nil:
			b = append(b, `,"delta":{"tool_calls":`...)
			b = append(b, d.ToolCalls...)
		case d.Parts != nil:
			b = append(b, `,"delta":{"content":`...)
			b = append(b, d.Parts...)
		default:
			b = append(b, `,"delta":{"content":`...)
			b = AppendString(b, d.Text)
		}
		b = append(b, `},"logprobs":`...)
	} else {
		b = append(b, `,"text":`...)
		b = AppendString(b, d.Text)
		b = append(b, `,"logprobs":`...)
	}
	b = AppendOrNull(b, d.Logprobs)
	if d.Reason == "" {
		b = append(b, `,"finish_reason":null`...)
		if !s.chat {
			b = append(b, `,"stop_reason":null`...)
		}
	} else {
		b = append(b, `,"finish_reason":"`...)
		b = append(b, d.Reason...)
		b = append(b, `","stop_reason":`...)
		b = appendStopReason(b, d.Stop, d.StopID)
	}
	if !s.chat {
		b = appendTokensOrNull(append(b, `,"prompt_token_ids":`...), d.Prompt)
	}
	b = s.appendTokens(append(b, `,"token_ids":`...), d.Tokens)
	b = append(b, d.ChoiceExtra...)
	b = append(b, "}]"...)
	if s.continuous {
		b = append(b, `,"usage":`...)
		b = AppendUsage(b, Usage{PromptTokens: s.usage.PromptTokens, CompletionTokens: d.Completion}, false)
	}
	b = append(b, d.Extra...)
	return append(b, "}\n\n"...)
}

// AppendUsageChunk appends the chunk without choices that stream_options.include_usage requests. extra is appended to
// its top level.
func (s *Stream) AppendUsageChunk(b []byte, u Usage, extra []byte) []byte {
	b = append(b, s.head...)
	b = append(b, `],"usage":`...)
	b = AppendUsage(b, u, false)
	b = append(b, extra...)
	return append(b, "}\n\n"...)
}

// Done is the last event of every stream.
const Done = "data: [DONE]\n\n"

// AppendUsage appends a usage object. A whole response has null where there are no details; a chunk omits the field.
func AppendUsage(b []byte, u Usage, whole bool) []byte {
	b = Fill(b, `{"prompt_tokens":$,"total_tokens":$,"completion_tokens":$`, u.PromptTokens,
		u.PromptTokens+u.CompletionTokens, u.CompletionTokens)
	switch {
	case u.Details:
		b = Fill(b, `,"prompt_tokens_details":{"cached_tokens":$}`, u.CachedTokens)
	case whole:
		b = append(b, `,"prompt_tokens_details":null`...)
	}
	return append(b, '}')
}

func appendStopReason(b []byte, stop string, id *uint32) []byte {
	switch {
	case stop != "":
		return AppendString(b, stop)
	case id != nil:
		return strconv.AppendUint(b, uint64(*id), 10)
	}
	return append(b, "null"...)
}

// AppendTokens appends a list of token ids.
func AppendTokens(b []byte, tokens []uint32) []byte {
	b = append(b, '[')
	for i, t := range tokens {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(t), 10)
	}
	return append(b, ']')
}

// AppendExtraChunk appends a last chunk without choices and usage. It has only top-level fields whose values are known
// after the whole answer.
func (s *Stream) AppendExtraChunk(b, extra []byte) []byte {
	b = append(b, s.head...)
	b = append(b, ']')
	b = append(b, extra...)
	return append(b, "}\n\n"...)
}
