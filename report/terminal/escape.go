package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Ids, names, headers and details come from clients, from other programs and
// from recordings that somebody sent. All that they could steer a terminal with
// is written out here, and nowhere else: the views and the summary print what
// Printable lets through, and everything without colours goes through a
// PrintableWriter.

// steers tells whether a character could steer a terminal, or turn around how a
// line reads (https://www.unicode.org/reports/tr9/#Explicit_Directional_Embeddings).
func steers(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError
}

// Plain tells, and fast, of nearly all text that nothing need be done.
func Plain[T string | []byte](text T, lines bool) bool {
	for i := range len(text) {
		if c := text[i]; (c < ' ' || c > '~') && !(lines && (c == '\n' || c == '\t')) {
			return false
		}
	}
	return true
}

// Printable is text that came from outside, for a terminal: control characters
// are written out as \u001b, bytes that are no UTF-8 as \xff.
func Printable(text string) string {
	if Plain(text, false) {
		return text
	}
	return string(AppendPrintable(nil, []byte(text), ""))
}

// AppendPrintable writes text out; the control characters in keep stay. Inside
// a JSON text, where control characters stand in strings alone, what is
// written is the same text.
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

// PrintableWriter writes to w with everything but line ends and tabs written
// out that could steer a terminal. It is safe for concurrent use.
func PrintableWriter(w io.Writer) io.Writer { return &printable{w: w} }

type printable struct {
	mu   sync.Mutex
	w    io.Writer
	rest []byte // a character's bytes, the last of which are still to come
}

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

// wholeRunes is the length of text without a last character that is cut.
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
