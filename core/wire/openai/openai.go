// Package openai parses the requests of an OpenAI-compatible model server and encodes its answers, in vLLM's form:
// requests with their limits and error answers, whole responses, and the chunks of a stream.
//
// The package is pure: bytes in, values out, and values in, bytes appended. A stream's chunks differ from one another
// in a few bytes only. A Stream encodes the common part once. Each later chunk is a handful of appends into the
// caller's buffer.
//
// Responses follow vLLM's V1 server: they have the fields that it always sends, with null where it sends null, in its
// order.
package openai

import "unicode/utf8"

// FinishReason says why a choice ended, as it appears on the wire.
type FinishReason string

// The finish reasons of vLLM.
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
	// CachedTokens is the number of prompt tokens found in the prefix cache. Answers include it where Details is true
	// (vLLM: --enable-prompt-tokens-details).
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

// verbatim marks the bytes that a JSON string holds unescaped.
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
