package tokens

import "github.com/windtunnel/windtunnel/core/machine"

// Word is one random word of a simulated answer: a space and three letters,
// four bytes, so one token of Packed.
func Word(draw *machine.Draw) string { return " " + draw.Letters(3) }

// maxText bounds what Text makes.
const maxText = 1 << 24

// Text is random text of exactly n tokens (at most 16,777,216). With Packed
// that is n words. Other tokenizers cut words differently, so more is made
// and cut to n tokens; text that ends within a character is cut before it,
// and encoding it again may differ at its end.
func Text(draw *machine.Draw, t Tokenizer, n int) string {
	n = max(0, min(n, maxText))
	if _, packed := t.(Packed); packed {
		b := make([]byte, 0, 4*n)
		for range n {
			b = append(b, Word(draw)...)
		}
		return string(b)
	}
	var text []byte
	var ids []uint32
	for words := n; len(ids) < n; words = max(1, n-len(ids)) {
		for range words {
			text = append(text, Word(draw)...)
		}
		ids = t.Encode(ids[:0], string(text))
	}
	return Decode(t, ids[:n])
}

// IDs are n random token ids that Packed would give for random words. They
// are the prompt of a benchmark that sends ids and no text.
func IDs(draw *machine.Draw, n int) []uint32 {
	n = max(0, min(n, maxText))
	return Packed{}.Encode(make([]uint32, 0, n), Text(draw, Packed{}, n))
}
