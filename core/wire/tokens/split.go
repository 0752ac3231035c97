package tokens

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Byte-level tokenizers first split text into pieces with a regular expression that looks ahead, which Go's regexp does
// not support. This file therefore has the few expressions in use as code. A splitter returns the length in bytes of
// the first piece of a text that is not empty.
type splitter func(text string) int

// The expressions, by their text in tokenizer.json.
var splitters = map[string]splitter{
	// GPT-2, and ByteLevel with use_regex.
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: splitGPT2,
	// cl100k, Llama 3.
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ` +
		`?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: splitLlama3,
	// Qwen 2 and 3: one digit at a time.
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: splitQwen,
	// o200k, gpt-oss: words also end where upper case begins.
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`: splitO200k,
}

func splitGPT2(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	at := 0
	if s[0] == ' ' && len(s) > 1 {
		at = 1
	}
	for _, class := range []func(rune) bool{unicode.IsLetter, unicode.IsNumber, symbol} {
		if n := run(s[at:], class); n > 0 {
			return at + n
		}
	}
	return spaces(s)
}

func splitLlama3(s string) int { return splitWords(s, 3) }

func splitQwen(s string) int { return splitWords(s, 1) }

func splitWords(s string, digits int) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	first, size := utf8.DecodeRuneInString(s)
	if leads(first) {
		if n := run(s[size:], unicode.IsLetter); n > 0 {
			return size + n
		}
	} else if n := run(s, unicode.IsLetter); n > 0 {
		return n
	}
	return splitRest(s, digits, "\r\n")
}

// splitRest implements the part that the newer expressions share: digits, symbols with the line ends after them, and
// white space.
func splitRest(s string, digits int, after string) int {
	if n := atMost(s, unicode.IsNumber, digits); n > 0 {
		return n
	}
	at := 0
	if s[0] == ' ' {
		at = 1
	}
	if n := run(s[at:], symbol); n > 0 {
		n += at
		return n + len(s[n:]) - len(strings.TrimLeft(s[n:], after))
	}
	white := s[:run(s, unicode.IsSpace)]
	if last := strings.LastIndexAny(white, "\r\n"); last >= 0 {
		return last + 1
	}
	return spaces(s)
}

func splitO200k(s string) int {
	first, size := utf8.DecodeRuneInString(s)
	starts := []int{0}
	if leads(first) {
		starts = []int{size, 0}
	}
	for _, mustEndLow := range []bool{true, false} {
		for _, at := range starts {
			var n int
			if mustEndLow {
				n = upperThenLower(s[at:])
			} else if n = run(s[at:], upper); n > 0 {
				n += run(s[at+n:], lower)
			}
			if n > 0 {
				n += at
				return n + contraction(s[n:], true)
			}
		}
	}
	return splitRest(s, 3, "\r\n/")
}

// upperThenLower matches upper*lower+ as a backtracking matcher does. Some characters are both, and the first part
// gives back as few as it can.
func upperThenLower(s string) int {
	n := run(s, upper)
	if more := run(s[n:], lower); more > 0 {
		return n + more
	}
	for end := n; end > 0; {
		r, size := utf8.DecodeLastRuneInString(s[:end])
		if lower(r) {
			return end
		}
		end -= size
	}
	return 0
}

func upper(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M)
}

func lower(r rune) bool {
	return unicode.In(r, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M)
}

// leads reports whether a character may precede a word: [^\r\n\p{L}\p{N}].
func leads(r rune) bool {
	return r != '\r' && r != '\n' && !unicode.IsLetter(r) && !unicode.IsNumber(r)
}

// symbol matches [^\s\p{L}\p{N}].
func symbol(r rune) bool {
	return !unicode.IsSpace(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r)
}

// run returns the length of the longest prefix of s with all characters in a class.
func run(s string, class func(rune) bool) int {
	for i, r := range s {
		if !class(r) {
			return i
		}
	}
	return len(s)
}

func atMost(s string, class func(rune) bool, count int) int {
	for i, r := range s {
		if count == 0 || !class(r) {
			return i
		}
		count--
	}
	return len(s)
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd.
func contraction(s string, anyCase bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	for _, c := range [...]string{"s", "t", "re", "ve", "m", "ll", "d"} {
		if tail := s[1:]; len(tail) >= len(c) &&
			(tail[:len(c)] == c || anyCase && strings.EqualFold(tail[:len(c)], c)) {
			return 1 + len(c)
		}
	}
	return 0
}

// spaces matches \s+(?!\S)|\s+. White space leaves its last character to the text that follows, unless nothing follows
// or the character is the only one.
func spaces(s string) int {
	n := run(s, unicode.IsSpace)
	if n == 0 {
		_, size := utf8.DecodeRuneInString(s)
		return size // unreachable: every character has a class
	}
	if n < len(s) {
		if _, size := utf8.DecodeLastRuneInString(s[:n]); size < n {
			return n - size
		}
	}
	return n
}
