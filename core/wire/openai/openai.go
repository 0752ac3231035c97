// Package openai holds what an OpenAI-compatible model server reads and
// writes, as vLLM spells it: requests with their limits and error answers,
// whole responses, and the chunks of a stream.
//
// It is pure: bytes in, values out, and values in, bytes appended. A stream's
// chunks differ from one another only in a few bytes, so what does not change
// is encoded once when the stream begins and every later chunk is a handful of
// appends into a buffer that the caller keeps.
//
// Shapes follow vLLM's V1 server: fields that it always sends are always sent,
// with null where it sends null, in its order.
package openai

import "unicode/utf8"

// FinishReason says why a choice ended, as it appears on the wire.
type FinishReason string

// The finish reasons that vLLM gives.
const (
	FinishStop      FinishReason = "stop"
	FinishLength    FinishReason = "length"
	FinishToolCalls FinishReason = "tool_calls"
	FinishAbort     FinishReason = "abort"
	FinishError     FinishReason = "error"
)

// Usage counts a request's tokens.
type Usage struct {
	PromptTokens     int
	CompletionTokens int
	// CachedTokens is how much of the prompt the prefix cache held; it is
	// told when Details is set (vLLM: --enable-prompt-tokens-details).
	CachedTokens int
	Details      bool
}

const hex = "0123456789abcdef"

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	b = appendEscaped(b, s)
	return append(b, '"')
}

// verbatim are the bytes that stand in a JSON string as they are.
var verbatim = func() (is [256]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// appendEscaped appends the inside of a JSON string.
func appendEscaped(b []byte, s string) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if verbatim[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(b, s[start:i]...)
				b = append(b, "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(b, s[start:]...)
}
