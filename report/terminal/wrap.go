package terminal

import (
	"cmp"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// WrapWords joins the head of a line and its words, and breaks between words where a line would be longer than so many
// columns; 0 columns never break. Further lines are indented by hang columns. A longer word is broken behind a comma,
// or anywhere except in a number.
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

// Wrap breaks a line between its words. Further lines are indented by hang columns. 0 columns never break.
func Wrap(line string, hang, columns int) string {
	words := strings.Split(line, " ")
	return WrapWords(words[0], words[1:], " ", hang, columns)
}

// pieces cuts a word into pieces of at most so many columns.
func pieces(word string, columns int) []string {
	var out []string
	for Columns(word) > columns {
		end, column, comma, other := 0, 0, 0, 0 // in bytes: a full line, and where the word may be broken
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

// numeric reports whether a character can be part of a number.
func numeric(r rune) bool { return r == '.' || unicode.IsDigit(r) }

// escapeAt returns the length of the escape sequence at the beginning of text.
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

// WriteWrapped writes text, with each of its lines broken as Wrap breaks it.
func WriteWrapped(to io.Writer, text string, hang, columns int) error {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(Wrap(strings.TrimSuffix(line, "\n"), hang, columns) + "\n")
	}
	_, err := io.WriteString(to, b.String())
	return err
}
