package tokens

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedAt finds the longest added token at a position of the text, and the part of the text that it covers. An added
// token may also cover the white space around it, but nothing before from.
func (t *BPE) addedAt(text string, from, at int) (found *added, start, end int) {
	if !t.firsts[text[at]] {
		return nil, 0, 0
	}
	for i := range t.added {
		a := &t.added[i]
		if !strings.HasPrefix(text[at:], a.text) {
			continue
		}
		start, end = at, at+len(a.text)
		if a.word && (wordEnds(text[:start]) || wordBegins(text[end:])) {
			continue
		}
		if a.left {
			start = from + len(strings.TrimRightFunc(text[from:start], unicode.IsSpace))
		}
		if a.tail {
			end += run(text[end:], unicode.IsSpace)
		}
		return a, start, end
	}
	return nil, 0, 0
}

func wordEnds(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWord(r)
}

func wordBegins(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}

func isWord(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.M, r)
}
