package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Ids, names, headers and details come from clients, from other programs and from other people's recordings. This file
// is the only one that escapes the characters in them that could control a terminal: views and the summary print the
// result of Printable, and everything without colours goes through a PrintableWriter.

// steers reports whether a character could control a terminal, or reverse the reading order of a line
// (https://www.unicode.org/reports/tr9/#Explicit_Directional_Embeddings).
func steers(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError
}

// Plain reports quickly that text needs no escapes, as nearly all text does not. lines admits line ends and tabs.
func Plain[T string | []byte](text T, lines bool) bool {
	for i := range len(text) {
		if c := text[i]; (c < ' ' || c > '~') && !(lines && (c == '\n' || c == '\t')) {
			return false
		}
	}
	return true
}

// Printable returns text from outside for a terminal: control characters become \u001b, bytes that are not UTF-8 become
// \xff.
func Printable(text string) string {
	if Plain(text, false) {
		return text
	}
	return string(AppendPrintable(nil, []byte(text), ""))
}

// AppendPrintable appends text with escapes, except for the control characters in keep. In a JSON text, where control
// characters stand only in strings, the result has the same value.
func AppendPrintable(out, text []byte, keep string) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r != utf8.RuneError && steers(r) && !strings.ContainsRune(keep, r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return out
}

// PrintableWriter returns a writer to w that escapes everything, except line ends and tabs, that could control a
// terminal. It is safe for concurrent use.
func PrintableWriter(w io.Writer) io.Writer { return &printable{w: w} }

type printable struct {
	mu   sync.Mutex
	w    io.Writer
	rest []byte // the first bytes of a character whose last ones are still to come
}

// Unescaped returns the writer below, for output that is no text.
func (p *printable) Unescaped() io.Writer { return p.w }

func (p *printable) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := b
	if len(p.rest) > 0 {
		text = append(p.rest, b...)
		p.rest = nil
	}
	if whole := wholeRunes(text); whole < len(text) {
		p.rest = append([]byte(nil), text[whole:]...)
		text = text[:whole]
	}
	if !Plain(text, true) {
		text = AppendPrintable(nil, text, "\n\t")
	}
	if len(text) == 0 {
		return len(b), nil
	}
	if _, err := p.w.Write(text); err != nil {
		return 0, err
	}
	return len(b), nil
}

// wholeRunes returns the length of text without an incomplete last character.
func wholeRunes(text []byte) int {
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return i
			}
			break
		}
	}
	return len(text)
}
