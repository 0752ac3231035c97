package terminal

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// WrapWords puts words behind the head of a line and breaks between them where a
// terminal of that many columns would break within; 0 columns never break. What
// does not fit goes on hang columns to the right, and what is longer than such a
// line is broken behind a comma, or anywhere but in a number.
func WrapWords(head string, words []string, between string, hang, columns int) string {
	var b strings.Builder
	b.WriteString(head)
	at, gap := Columns(head), Columns(between)
	for _, w := range words {
		n := Columns(w)
		if columns <= 0 || at+gap+n <= columns {
			b.WriteString(between + w)
			at += gap + n
			continue
		}
		for _, piece := range pieces(w, max(1, columns-hang)) {
			b.WriteString("\n" + strings.Repeat(" ", hang) + piece)
			at = hang + Columns(piece)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Wrap breaks a line between its words, as views do; what goes on is hang
// columns to the right. 0 columns never break.
func Wrap(line string, hang, columns int) string {
	words := strings.Split(line, " ")
	return WrapWords(words[0], words[1:], " ", hang, columns)
}

// pieces cuts a word into some of at most so many columns each.
func pieces(word string, columns int) []string {
	var out []string
	for Columns(word) > columns {
		end, column, comma, other := 0, 0, 0, 0 // bytes: of a whole line, and to where it may be broken
		for before := ' '; column <= columns; {
			if n := escapeAt(word[end:]); n > 0 {
				end += n
				continue
			}
			next, n := utf8.DecodeRuneInString(word[end:])
			if before == ',' {
				comma = end
			} else if column > 0 && !(numeric(before) && numeric(next)) {
				other = end
			}
			if column++; column <= columns {
				end += n
			}
			before = next
		}
		cut := cmp.Or(comma, other, end) // a number that fills the line is broken
		out, word = append(out, word[:cut]), word[cut:]
	}
	return append(out, word)
}

// numeric tells whether a character may stand in a number.
func numeric(r rune) bool { return r == '.' || unicode.IsDigit(r) }

// escapeAt is the length of the escape sequence that text begins with.
func escapeAt(text string) int {
	if !strings.HasPrefix(text, "\x1b[") {
		return 0
	}
	return strings.IndexByte(text, 'm') + 1
}

// Columns counts characters without the escape sequences that colour them.
func Columns(text string) int {
	n := 0
	for text != "" {
		before, after, found := strings.Cut(text, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !found {
			break
		}
		_, text, _ = strings.Cut(after, "m")
	}
	return n
}
