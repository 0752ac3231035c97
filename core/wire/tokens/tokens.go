// Package tokens turns text into token ids and back. It needs no network and no files.
//
// Packed is a tokenizer without a vocabulary: four bytes of text are one token. It is deterministic and reversible, and
// it is the same as the estimate of the endpoint picker's token-producer, so both see the same prefixes.
// ParseTokenizerJSON parses a Hugging Face tokenizer.json from bytes that the caller has read: byte-level BPE, as in
// GPT-2, Llama 3, Qwen and gpt-oss, or SentencePiece's, as in Llama 2 and Mistral.
//
// Detokenizer streams: it holds an incomplete character back until the token that completes it. Words and Text make
// random text of a given number of tokens from a keyed draw. Template writes a conversation as one prompt.
package tokens

import "unicode/utf8"

// Tokenizer turns text into token ids and back. Implementations are safe for concurrent use.
type Tokenizer interface {
	// Encode appends the text's token ids to dst. It adds no begin-of-text token.
	Encode(dst []uint32, text string) []uint32
	// Decode appends the bytes of one token to dst. They may be a part of a character. An unknown id has no bytes.
	Decode(dst []byte, id uint32) []byte
}

// Count returns the number of tokens of a text.
func Count(t Tokenizer, text string) int {
	if _, packed := t.(Packed); packed {
		return (len(text) + 3) / 4
	}
	return len(t.Encode(nil, text))
}

// Decode returns the text of a sequence of tokens. Bytes that are not UTF-8 become U+FFFD, as clients expect in JSON.
func Decode(t Tokenizer, ids []uint32) string {
	var d Detokenizer
	var out []byte
	for _, id := range ids {
		out = append(out, d.Next(t, id)...)
	}
	out = append(out, d.Rest()...)
	if b, ok := t.(*BPE); ok && b.strip && len(out) > 0 && out[0] == ' ' {
		out = out[1:] // the space that Encode added
	}
	return string(out)
}

// Packed is the tokenizer without a vocabulary: four bytes of text are one token, with the first byte in the lowest
// bits. The last token of a text may hold fewer. Zero bytes at a token's end are not text.
type Packed struct{}

// Encode implements Tokenizer.
func (Packed) Encode(dst []uint32, text string) []uint32 {
	for len(text) >= 4 {
		dst = append(dst, uint32(text[0])|uint32(text[1])<<8|uint32(text[2])<<16|uint32(text[3])<<24)
		text = text[4:]
	}
	if len(text) == 0 {
		return dst
	}
	var last uint32
	for i := range len(text) {
		last |= uint32(text[i]) << (8 * i)
	}
	return append(dst, last)
}

// Decode implements Tokenizer.
func (Packed) Decode(dst []byte, id uint32) []byte {
	for ; id != 0; id >>= 8 {
		dst = append(dst, byte(id))
	}
	return dst
}

// Detokenizer turns a stream of tokens into valid UTF-8. The zero value is ready to use. Each stream needs its own.
type Detokenizer struct {
	held []byte // an incomplete character, at most three bytes after Next
}

// Next returns the text that a token completes. It may be empty.
func (d *Detokenizer) Next(t Tokenizer, id uint32) string {
	d.held = t.Decode(d.held, id)
	whole := len(d.held)
	// Only the last three bytes can be the beginning of a character.
	for i := 1; i <= min(3, len(d.held)); i++ {
		tail := d.held[len(d.held)-i:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= i
			}
			break
		}
	}
	text := valid(d.held[:whole])
	d.held = append(d.held[:0], d.held[whole:]...)
	return text
}

// Rest returns the bytes held back when the stream ends: U+FFFD if a character is incomplete.
func (d *Detokenizer) Rest() string {
	text := valid(d.held)
	d.held = d.held[:0]
	return text
}

func valid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+4)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		out = utf8.AppendRune(out, r)
		b = b[size:]
	}
	return string(out)
}
