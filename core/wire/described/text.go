// Package described holds requests that say what is in them without spelling it
// out: which fields a body has, and of what its texts are made.
//
// A driver of virtual time hands such a Body from machine to machine, and each
// takes from it what it would have read in the bytes: lengths, and the names of
// a prompt's beginnings (Names), which are worked out of the same bytes, but only
// of those that are new. Who does need the bytes has them made (Bytes).
//
// What texts are made of is drawn by position, so that any part of one can be made
// by itself. All are of characters that stand for themselves in JSON (Plain):
// lengths need no bytes then. Whatever is not, is not described.
package described

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Text is a text by what it is made of. The zero Text is empty.
type Text struct {
	literal string
	draw    machine.Draw       // of letters, where there are neither words nor a literal
	words   *tokens.Vocabulary // that base stands for
	base    uint64
	units   *Units
	n       int // letters or words
	size    int // bytes
}

// Literal returns a text as it is. It must be Plain.
func Literal(s string) Text { return Text{literal: s, size: len(s)} }

// Letters are n letters, digits and spaces of a draw.
func Letters(d machine.Draw, n int) Text { return Text{draw: d, n: max(0, n), size: max(0, n)} }

// Units are what a text is made of that others may have beginnings of.
type Units struct {
	// Heads stand each for so many bytes (Size) and for all that is before them, the
	// last for all the rest.
	Heads []uint64
	Size  int
	// Shared is how many of the heads, from the first on, another text may have.
	Shared int
	// Letters is what the bytes are drawn from that a head stands for: other letters
	// for each.
	Letters func(head uint64) machine.Draw
}

// Text returns the first n bytes.
func (u *Units) Text(n int) Text { return Text{units: u, n: max(0, n), size: max(0, n)} }

// end is where a unit ends in a text of n bytes.
func (u *Units) end(unit, n int) int {
	if unit == len(u.Heads)-1 {
		return n
	}
	return min(n, (unit+1)*u.Size)
}

// Words returns the first n words of what a model says (tokens.Answer).
func Words(v *tokens.Vocabulary, base uint64, n int) Text {
	t := Text{words: v, base: base, n: n}
	for i := range n {
		_, word := v.Pick(base, i)
		t.size += len(word)
	}
	return t
}

// drawn reports whether the text is letters of one draw.
func (t *Text) drawn() bool { return t.words == nil && t.literal == "" && t.units == nil }

// Plain reports whether a text stands for itself in JSON, whoever writes it.
func Plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// Len returns the text's length in bytes.
func (t *Text) Len() int { return t.size }

// Append appends the text.
func (t *Text) Append(b []byte) []byte { return t.append(b, t.size) }

// append appends the first n bytes of the text, or all where there are fewer.
func (t *Text) append(b []byte, n int) []byte {
	n = max(0, min(n, t.size))
	if t.drawn() {
		return AppendLetters(b, t.draw, n)
	}
	if t.units != nil {
		return t.part(b, 0, n)
	}
	if t.literal != "" {
		return append(b, t.literal[:n]...)
	}
	end := len(b) + n
	for i := 0; i < t.n && len(b) < end; i++ {
		_, word := t.words.Pick(t.base, i)
		b = append(b, word...)
	}
	return b[:end]
}

// part appends the bytes of a text of units from one to another.
func (t *Text) part(b []byte, from, to int) []byte {
	u := t.units
	for i := min(from/u.Size, len(u.Heads)-1); from < to; i++ {
		start, end := i*u.Size, min(to, u.end(i, t.n))
		at := len(b)
		b = AppendLetters(b, u.Letters(u.Heads[i]), end-start)
		b = b[:at+copy(b[at:], b[at+from-start:])]
		from = end
	}
	return b
}

// String returns the text.
func (t *Text) String() string {
	if t.literal != "" {
		return t.literal
	}
	return string(t.Append(make([]byte, 0, t.size)))
}

// margin returns how many bytes of white space are at the text's beginning and, unless
// it is nothing else, at its end.
func (t *Text) margin() (left, right int) {
	const some = 64 // letters that mostly suffice
	if u := t.units; u != nil && len(u.Heads) > 1 {
		n := (len(u.Heads) - 1) * u.Size
		first, last := Letters(u.Letters(u.Heads[0]), u.Size), Letters(u.Letters(u.Heads[len(u.Heads)-1]), t.n-n)
		left, _ = first.margin()
		blank, right := last.margin()
		if left < first.size && blank < last.size {
			return left, right
		}
	}
	if t.drawn() && t.n > 2*some {
		var buf [some + 7]byte
		left = margin(AppendLetters(buf[:0], t.draw, some), bytes.TrimLeft)
		last := t.draw
		last.Skip(uint64(t.n/8 - 7))
		tail := AppendLetters(buf[:0], last, some-8+t.n%8)
		if right = margin(tail, bytes.TrimRight); left < some && right < len(tail) {
			return left, right
		}
	}
	text := t.Append(nil)
	if left = margin(text, bytes.TrimLeft); left < len(text) {
		return left, margin(text, bytes.TrimRight)
	}
	return left, 0
}

// margin returns how many bytes are taken off that are white space.
func margin(b []byte, trim func(b []byte, cutset string) []byte) int {
	return len(b) - len(trim(b, " "))
}

// letters are what random texts are made of.
const letters = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJ 0123456789 "

// letterOf is the letter that a random byte stands for.
var letterOf = func() (table [256]byte) {
	for i := range table {
		table[i] = letters[i*len(letters)>>8]
	}
	return table
}()

// AppendLetters appends n letters, digits and spaces: eight for each value of a
// draw.
func AppendLetters(b []byte, d machine.Draw, n int) []byte {
	at := len(b)
	b = slices.Grow(b, max(0, n)+7)[:at+max(0, n)+7]
	for out := b[at:]; len(out) >= 8; out = out[8:] {
		z := d.Uint64()
		binary.LittleEndian.PutUint64(out, uint64(letterOf[byte(z)])|uint64(letterOf[byte(z>>8)])<<8|
			uint64(letterOf[byte(z>>16)])<<16|uint64(letterOf[byte(z>>24)])<<24|
			uint64(letterOf[byte(z>>32)])<<32|uint64(letterOf[byte(z>>40)])<<40|
			uint64(letterOf[byte(z>>48)])<<48|uint64(letterOf[byte(z>>56)])<<56)
	}
	return b[:at+max(0, n)]
}
