package terminal

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Clip makes text fit on a line: no control characters (a recording may come
// from anywhere), and not longer than a person reads.
func Clip(text string) string { return ClipTo(Wide, text) }

// Wide is as much of one value as a person reads; a list may have more.
const Wide = 64

// ClipTo is Clip to so many characters.
func ClipTo(most int, text string) string {
	cut := utf8.RuneCountInString(text) > most
	if cut {
		text = string([]rune(text)[:most-1])
	}
	switch {
	case strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }), text == "":
		text = strconv.Quote(text)
	case strings.Contains(text, " ") && text[0] != '{': // JSON shows its own ends
		text = `"` + text + `"`
	}
	if cut {
		text += "…"
	}
	return text
}
