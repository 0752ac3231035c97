package structured

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Regex returns the form of texts that a regular expression matches as a whole. The syntax is ECMAScript's, as far as
// xgrammar supports it (cpp/regex_converter.cc), with Unicode classes and case folding as in xgrammar's fallback.
func Regex(pattern string, spend func(int) bool) (*Grammar, error) {
	return build(spend, func(b *builder) *node { return b.regex(pattern, 0, false) })
}

// regexWork is the work of parsing one byte of a regular expression.
const regexWork = 64

// regex returns the nodes of a regular expression. quoted states that the expression describes the content of a JSON
// string.
func (b *builder) regex(pattern string, flags syntax.Flags, quoted bool) *node {
	notTooLong("regex", len(pattern))
	b.spend(regexWork * len(pattern))
	r := regexReader{scanner: scanner{builder: b, text: pattern}, flags: flags, quoted: quoted}
	r.place = func() string { return fmt.Sprintf("Regex parsing error at position %d", r.at+1) }
	n := r.alternatives()
	if r.at < len(r.text) {
		r.fail("Unmatched ')'")
	}
	return n
}

// regexReader parses an expression. It leaves character classes to regexp/syntax, whose limits on repetitions do not
// matter for them.
type regexReader struct {
	scanner
	flags  syntax.Flags
	quoted bool
}

func (r *regexReader) alternatives() *node {
	return r.between(r.sequence, func() bool { return r.take("|") })
}

func (r *regexReader) sequence() *node {
	var kids []*node
	var text []byte // plain characters so far
	flush := func() {
		if len(text) > 0 {
			kids, text = append(kids, r.literal(string(text))), text[:0]
		}
	}
	for r.at < len(r.text) && r.text[r.at] != '|' && r.text[r.at] != ')' {
		plain, n := r.atom()
		least, most, repeated := r.times()
		if n == nil && !repeated {
			text = append(text, plain...)
			continue
		}
		flush()
		if n == nil {
			n = r.literal(plain)
		}
		if repeated {
			n = r.repeat(n, least, most)
		}
		kids = append(kids, n)
	}
	if flush(); len(kids) == 0 {
		return r.literal("")
	}
	return r.builder.sequence(kids...)
}

// times parses the number of repetitions of the element before.
func (r *regexReader) times() (least, most int, ok bool) {
	switch {
	case r.take("*"):
		least, most = 0, -1
	case r.take("+"):
		least, most = 1, -1
	case r.take("?"):
		least, most = 0, 1
	default:
		var size int
		if least, most, size = span(r.rest()); size == 0 {
			return 0, 0, false
		}
		if r.at += size; most >= 0 && most < least {
			r.fail("Invalid repetition count.")
		}
	}
	r.take("?") // a lazy repetition matches the same texts
	if _, _, size := span(r.rest()); size > 0 || r.at < len(r.text) && strings.IndexByte("*+?", r.text[r.at]) >= 0 {
		r.fail("Two consecutive repetition modifiers are not allowed.")
	}
	return least, most, true
}

// span parses {m}, {m,} and {m,n}; size is 0 if a text does not begin with one.
func span(s string) (least, most, size int) {
	if !strings.HasPrefix(s, "{") {
		return 0, 0, 0
	}
	end := strings.IndexByte(s[:min(len(s), 33)], '}')
	if end < 0 {
		return 0, 0, 0
	}
	low, high, both := strings.Cut(s[1:end], ",")
	least, err := strconv.Atoi(low)
	if err != nil || least < 0 {
		return 0, 0, 0
	}
	switch most = least; {
	case both && high == "":
		most = -1
	case both:
		if most, err = strconv.Atoi(high); err != nil || most < 0 {
			return 0, 0, 0
		}
		most = min(most, endless-1)
	}
	return min(least, endless-1), most, end + 1
}

// atom parses the element of one repetition: plain text, or a node.
func (r *regexReader) atom() (string, *node) {
	switch c := r.text[r.at]; c {
	case '(':
		return "", r.group()
	case '[':
		return "", r.brackets()
	case '.':
		r.at++
		return "", r.class(scalar, r.quoted)
	case '^', '$': // the whole text matches anyway
		r.at++
		return "", r.literal("")
	case '\\':
		return r.escape()
	case '*', '+', '?':
		return "", r.fail("Nothing to repeat.")
	}
	c, size := utf8.DecodeRuneInString(r.rest())
	r.at += size
	return r.char(c), nil
}

// char returns a character as it is written.
func (r *regexReader) char(c rune) string {
	if r.quoted {
		return string(appendEscaped(nil, c))
	}
	return string(c)
}

func (r *regexReader) group() *node {
	r.at++
	before := r.flags
	defer func() { r.flags = before }()
	if r.take("?") {
		switch rest := r.rest(); {
		case r.take(":"):
		case strings.HasPrefix(rest, "=") || strings.HasPrefix(rest, "!"):
			return r.fail("Lookahead is not supported yet.")
		case strings.HasPrefix(rest, "<=") || strings.HasPrefix(rest, "<!"):
			return r.fail("Lookbehind is not supported yet.")
		case r.take("<") || r.take("P<"):
			end := strings.IndexByte(r.rest(), '>')
			if end < 1 {
				return r.fail("Invalid named capturing group.")
			}
			r.at += end + 1
		default:
			n := len(rest) - len(strings.TrimLeft(rest, "imsux"))
			if strings.Contains(rest[:n], "i") {
				r.flags |= syntax.FoldCase
			}
			if r.at += n; n > 0 && r.take(")") {
				before = r.flags // up to the end of the surrounding group
				return r.literal("")
			}
			if n == 0 || !r.take(":") {
				return r.fail("Group modifier flag is not supported yet.")
			}
		}
	}
	n := r.within(r.alternatives)
	if !r.take(")") {
		return r.fail("The parenthesis is not closed.")
	}
	return n
}

// brackets parses a class of characters.
func (r *regexReader) brackets() *node {
	from := r.at
	if r.take("[^]") {
		return r.class(scalar, r.quoted)
	}
	if r.take("[]") {
		return r.fail("Empty character class is not allowed in regex.")
	}
	var out strings.Builder
	for r.at++; ; {
		switch {
		case r.at >= len(r.text):
			r.at = from
			return r.fail("Unclosed '['")
		case r.take("]"):
			return r.one("[" + out.String() + "]")
		case r.take(`\b`):
			out.WriteString(`\x08`)
		case r.text[r.at] == '\\':
			if c, ok := r.point(); ok {
				if c < utf8.RuneSelf {
					fmt.Fprintf(&out, `\x%02x`, c)
				} else {
					out.WriteRune(c)
				}
				continue
			}
			out.WriteString(r.property())
		default:
			if r.text[r.at] == '[' {
				out.WriteByte('\\') // [: has no meaning here
			}
			_, size := utf8.DecodeRuneInString(r.rest())
			out.WriteString(r.text[r.at : r.at+size])
			r.at += size
		}
	}
}

// The work of regexp/syntax for a class: for each class, for a Unicode class in it, and for a range in it whose
// characters it folds one by one.
const (
	classWork    = 512
	propertyWork = 16 << 10
	foldedWork   = 512 << 10
)

func (r *regexReader) classWork(class string) int {
	work := classWork + propertyWork*(strings.Count(class, `\p`)+strings.Count(class, `\P`))
	if r.flags&syntax.FoldCase != 0 && strings.ContainsFunc(class, func(c rune) bool { return c >= utf8.RuneSelf }) {
		work += foldedWork * strings.Count(class, "-")
	}
	return work
}

// one returns a class of characters, as regexp/syntax parses it.
func (r *regexReader) one(class string) *node {
	r.spend(r.classWork(class))
	re, err := syntax.Parse(class, syntax.Perl|r.flags)
	if err != nil {
		return r.fail("%v", err)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return r.literal(r.char(re.Rune[0]))
	case syntax.OpCharClass:
		return r.class(re.Rune, r.quoted)
	case syntax.OpAnyCharNotNL:
		return r.class(others([]rune{'\n', '\n'}), r.quoted)
	case syntax.OpAnyChar:
		return r.class(scalar, r.quoted)
	}
	return r.class(nil, r.quoted)
}

func (r *regexReader) escape() (string, *node) {
	from := r.at
	if c, ok := r.point(); ok {
		return r.char(c), nil
	}
	switch e := r.text[from+1]; {
	case e >= '1' && e <= '9', e == 'k':
		return "", r.fail("Backreference is not supported yet.")
	case e == 'b' || e == 'B':
		return "", r.fail("Word boundary is not supported yet.")
	case e == 'A' || e == 'z' || e == 'Z':
		r.at += 2
		return "", r.literal("")
	}
	return "", r.one(r.property())
}

// maxProperty is longer than the name of any of Unicode's classes.
const maxProperty = 64

// property parses \d and similar classes, and Unicode's \p{…}.
func (r *regexReader) property() string {
	rest, size := r.rest(), min(2, len(r.rest()))
	if strings.HasPrefix(rest, `\p{`) || strings.HasPrefix(rest, `\P{`) {
		if end := strings.IndexByte(rest[:min(len(rest), maxProperty)], '}'); end > 0 {
			size = end + 1
		}
	} else if strings.HasPrefix(rest, `\p`) || strings.HasPrefix(rest, `\P`) {
		size = min(3, len(rest))
	}
	r.at += size
	return rest[:size]
}

// point parses an escape for one character.
func (r *regexReader) point() (c rune, ok bool) {
	rest := r.rest()
	if len(rest) < 2 {
		r.fail("Escape sequence is not finished.")
	}
	const from, to = `nrtvf0`, "\n\r\t\v\f\x00"
	e, size := utf8.DecodeRuneInString(rest[1:])
	size++
	switch i := strings.IndexRune(from, e); {
	case i >= 0:
		c = rune(to[i])
	case e == 'u' || e == 'x':
		if c, size = codePoint(rest); size == 0 {
			r.fail("Invalid Unicode escape sequence.")
		}
	case e == 'c':
		if size = 3; len(rest) < size || rest[2]|0x20 < 'a' || rest[2]|0x20 > 'z' {
			r.fail("Invalid control character escape sequence.")
		}
		c = rune(rest[2] % 32)
	case slices.Contains([]rune("dDwWsSpPbBkAzZ123456789"), e):
		return 0, false
	default:
		c = e // any other character stands for itself
	}
	r.at += size
	return c, true
}

// codePoint parses \xHH, \uHHHH and either with {H…}; size is 0 on failure.
func codePoint(s string) (c rune, size int) {
	size = map[byte]int{'x': 4, 'u': 6}[s[1]]
	digits := ""
	if strings.HasPrefix(s[2:], "{") {
		size = strings.IndexByte(s, '}') + 1
		digits = s[3:max(3, size-1)]
	} else if len(s) >= size {
		digits = s[2:size]
	}
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || v > utf8.MaxRune {
		return 0, 0
	}
	return rune(v), size
}

// class returns a node for one of the characters in pairs, which are in order. Without any character, the form has no
// text.
func (b *builder) class(pairs []rune, quoted bool) *node {
	if s := newSet(pairs, quoted); s != nil {
		return b.node(node{kind: class, set: s})
	}
	return b.node(node{kind: either})
}
