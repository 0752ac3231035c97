package chattemplate

import (
	"regexp"
	"strconv"
	"strings"
)

// rewritten returns a template with some constructs replaced that the library (gonja 2.9) misreads: a condition inside
// brackets, (a if c else b), a negative index that reaches the first element, such as x[-1] of a list of one, and the
// order of an object's items(), which become a filter. The line breaks stay in place.
func rewritten(text string) string {
	var b strings.Builder
	for text != "" {
		begin := strings.IndexByte(text, '{')
		if begin < 0 || begin+1 == len(text) {
			break
		}
		b.WriteString(text[:begin])
		text = text[begin:]
		end := 0
		switch text[1] {
		case '#':
			if end = strings.Index(text, "#}"); end >= 0 {
				b.WriteString(text[:end])
			}
		case '{', '%':
			if end = endOf(text[2:], map[byte]byte{'{': '}', '%': '%'}[text[1]]); end >= 0 {
				end += 2
				b.WriteString(text[:2])
				b.WriteString(code(text[2:end]))
			}
		default:
			b.WriteByte('{')
			text = text[1:]
			continue
		}
		if end < 0 {
			break // the parser reports the mistake
		}
		text = text[end:]
	}
	return b.String() + text
}

// endOf returns the position where the code of a tag or an output ends, or -1.
func endOf(text string, mark byte) int {
	for i, depth := 0, 0; i+1 < len(text); i++ {
		switch text[i] {
		case '\'', '"':
			i += quoted(text[i:]) - 1
		case '{', '[', '(':
			depth++
		case ']', ')':
			depth--
		case mark:
			if text[i+1] == '}' && depth <= 0 {
				return i
			}
			if mark == '}' {
				depth--
			}
		case '}':
			depth--
		}
	}
	return -1
}

// quoted returns the length of the quoted text at the beginning of the code.
func quoted(code string) int {
	for i := 1; i < len(code); i++ {
		switch code[i] {
		case '\\':
			i++
		case code[0]:
			return i + 1
		}
	}
	return len(code)
}

var ofObject = regexp.MustCompile(`^\.\s*(items|keys|values)\s*\(\s*\)`)

var fromEnd = regexp.MustCompile(`^\s*-\s*([1-9]\d{0,8})\s*$`)

// code rewrites the brackets in a piece of code.
func code(text string) string {
	var b strings.Builder
	indexed := false // a value with elements precedes the [
	for i := 0; i < len(text); {
		n := 1
		switch c := text[i]; c {
		case '.':
			if m := ofObject.FindStringSubmatch(text[i:]); m != nil {
				n = len(m[0])
				b.WriteString("|" + m[1])
			} else {
				b.WriteByte(c)
			}
			indexed = false
		case '\'', '"':
			n = quoted(text[i:])
			b.WriteString(text[i : i+n])
			indexed = true
		case '(', '[', '{':
			n = group(text[i:])
			if n == 0 { // not closed
				b.WriteString(text[i:])
				return b.String()
			}
			inner := text[i+1 : i+n-1]
			if m := fromEnd.FindStringSubmatch(inner); c == '[' && indexed && m != nil {
				k, _ := strconv.Atoi(m[1])
				to := ""
				if k > 1 {
					to = strconv.Itoa(1 - k)
				}
				b.WriteString("[-" + m[1] + ":" + to + "][0]")
			} else {
				b.WriteByte(c)
				b.WriteString(parts(inner))
				b.WriteByte(text[i+n-1])
			}
			indexed = true
		default:
			b.WriteByte(c)
			if c != ' ' && c != '\n' && c != '\t' {
				indexed = word(c)
			}
		}
		i += n
	}
	return b.String()
}

func word(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// group returns the length of the bracketed code at the beginning, or 0 where a bracket is not closed.
func group(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\'', '"':
			i += quoted(text[i:]) - 1
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// outside calls each for every position of the code outside brackets and quotes, until each returns true.
func outside(text string, each func(i int) (enough bool)) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\'', '"':
			i += quoted(text[i:]) - 1
		case '(', '[', '{':
			if n := group(text[i:]); n > 0 {
				i += n - 1
			}
		default:
			if each(i) {
				return
			}
		}
	}
}

// parts rewrites the code between brackets: values separated by commas, which may follow names.
func parts(text string) string {
	var out []string
	from := 0
	outside(text, func(i int) bool {
		if text[i] == ',' {
			out = append(out, part(text[from:i]))
			from = i + 1
		}
		return false
	})
	return strings.Join(append(out, part(text[from:])), ",")
}

func part(text string) string {
	value := 0 // the value's beginning, after name= or key:
	outside(text, func(i int) bool {
		switch {
		case text[i] == ':', text[i] == '=' && (i+1 == len(text) || text[i+1] != '=') &&
			(i == 0 || !strings.ContainsRune("=!<>", rune(text[i-1]))):
			value = i + 1
		}
		return value > 0
	})
	return code(text[:value]) + condition(text[value:])
}

// condition rewrites "a if c else b".
func condition(text string) string {
	when, otherwise := keyword(text, "if", 0), -1
	if when >= 0 {
		otherwise = keyword(text, "else", when)
	}
	if when < 0 {
		return code(text)
	}
	c, b := text[when+len("if"):], " ''"
	if otherwise >= 0 {
		c, b = text[when+len("if"):otherwise], condition(text[otherwise+len("else"):])
	}
	return "((" + code(c) + ") and [" + code(text[:when]) + "] or [" + b + "])[0]"
}

// keyword returns the position of a word outside of brackets, at from or later, or -1.
func keyword(text, name string, from int) int {
	at := -1
	outside(text, func(i int) bool {
		if i >= from && strings.HasPrefix(text[i:], name) && (i == 0 || !word(text[i-1])) &&
			(i+len(name) == len(text) || !word(text[i+len(name)])) {
			at = i
		}
		return at >= 0
	})
	return at
}
