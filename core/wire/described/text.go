// Package described holds requests that describe their bodies without the bytes: which fields a body has, and how its
// texts are made.
//
// A driver of virtual time passes such a Body from machine to machine. Each machine computes from it what it would
// otherwise read in the bytes: lengths, and the names of a prompt's beginnings (Names). Names come from the same bytes,
// but only from those that are new. A machine that needs the bytes calls Bytes.
//
// Texts are random and drawn by position, so any part of one can be made by itself. All their characters are the same
// in JSON (Plain), so lengths need no bytes. Other texts are not described.
package described

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Text is a text in terms of its parts. The zero Text is empty.
type Text struct {
	literal string
	draw    machine.Draw       // of letters, where the text has no words and no literal
	words   *tokens.Vocabulary // base picks from them
	base    uint64
	units   *Units
	n       int // in letters or words
	size    int // in bytes
}

// Literal returns a text of these bytes. The string must be Plain.
func Literal(s string) Text { return Text{literal: s, size: len(s)} }

// Letters returns a text of n letters, digits and spaces from a draw.
func Letters(d machine.Draw, n int) Text { return Text{draw: d, n: max(0, n), size: max(0, n)} }

// Units are the parts of a text whose beginnings other texts may have, too.
type Units struct {
	// Each head stands for Size bytes and everything before them. The last one stands for the whole rest.
	Heads []uint64
	Size  int
	// Shared is the number of heads, from the first, that another text may have.
	Shared int
	// Letters returns the draw for a head's bytes. Different heads have different letters.
	Letters func(head uint64) machine.Draw
}

// Text returns a text of the first n bytes.
func (u *Units) Text(n int) Text { return Text{units: u, n: max(0, n), size: max(0, n)} }

// end returns the position where a unit ends in a text of n bytes.
func (u *Units) end(unit, n int) int {
	if unit == len(u.Heads)-1 {
		return n
	}
	return min(n, (unit+1)*u.Size)
}

// Words returns a text of the first n words of a model's output (tokens.Answer).
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

// Plain reports whether every JSON encoder writes a text unchanged.
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

// Append appends all bytes of the text to b.
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

// part appends the bytes from position from to position to, for a text of units.
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

// String returns all bytes of the text. It allocates them.
func (t *Text) String() string {
	if t.literal != "" {
		return t.literal
	}
	return string(t.Append(make([]byte, 0, t.size)))
}

// margin returns the number of white space bytes at the text's beginning and, unless the text is nothing else, at its
// end.
func (t *Text) margin() (left, right int) {
	const some = 64 // usually enough letters
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

// margin returns the number of white space bytes that trim removes.
func margin(b []byte, trim func(b []byte, cutset string) []byte) int {
	return len(b) - len(trim(b, " "))
}

// letters is the alphabet of random texts.
const letters = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJ 0123456789 "

// letterOf maps a random byte to a letter.
var letterOf = func() (table [256]byte) {
	for i := range table {
		table[i] = letters[i*len(letters)>>8]
	}
	return table
}()

// AppendLetters appends n letters, digits and spaces, eight for each value of a draw.
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
