package report

import (
	"strings"
	"unicode/utf8"
)

// hang stands before what did not fit on a step's line.
const hang = "            "

// wrap puts words behind the head of a line and breaks between them where a
// terminal of that many columns would break within; 0 columns never break.
func wrap(head string, words []string, columns int) string {
	var b strings.Builder
	b.WriteString(head)
	at := columnsOf(head)
	for _, w := range words {
		n := columnsOf(w)
		if columns > 0 && at+2+n > columns {
			b.WriteString("\n" + hang)
			at = len(hang)
		} else {
			b.WriteString("  ")
			at += 2
		}
		b.WriteString(w)
		at += n
	}
	return strings.TrimRight(b.String(), " ")
}

// columnsOf counts characters without the escape sequences that colour them.
func columnsOf(text string) int {
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
