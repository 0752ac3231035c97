package terminal

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Clip makes text fit on a line: it escapes control characters, and limits the length to Wide.
func Clip(text string) string { return ClipTo(Wide, text) }

// Wide is the number of characters of one value that views print. Lists have more.
const Wide = 64

// ClipTo is Clip for another number of characters.
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
