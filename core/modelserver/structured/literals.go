package structured

import (
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"
)

// string parses a text and, in Lark, a range of characters.
func (p *parser) string() *node {
	text, ok := p.quoted()
	if !ok {
		return p.literal("")
	}
	if p.dialect == ebnf {
		return p.literal(text)
	}
	if p.take("i") {
		return p.literal(text) // one of its spellings
	}
	from := p.at
	if p.space(); !p.take("..") {
		p.at = from
		return p.literal(text)
	}
	p.space()
	last, ok := p.quoted()
	if !ok {
		return p.literal("")
	}
	low, n := utf8.DecodeRuneInString(text)
	high, m := utf8.DecodeRuneInString(last)
	if n != len(text) || m != len(last) || low > high {
		return p.fail("character range endpoints must be one character each, in order")
	}
	return p.class([]rune{low, high}, false)
}

func (p *parser) quoted() (string, bool) {
	if !p.take(`"`) {
		p.fail("Expect string literal")
		return "", false
	}
	var out []byte
	for p.peek() != '"' {
		r, ok := p.char()
		if !ok {
			return "", false
		}
		out = utf8.AppendRune(out, r)
	}
	p.at++
	return string(out), true
}

// char parses a character, or its escape.
func (p *parser) char() (rune, bool) {
	switch p.peek() {
	case 0, '\n':
		p.fail("Expect \" or ] before the end of the line")
		return 0, false
	case '\\':
	default:
		r, size := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += size
		return r, true
	}
	rest := p.text[p.at:]
	if len(rest) < 2 {
		p.fail("Invalid escape sequence")
		return 0, false
	}
	digits := map[byte]int{'u': 4, 'U': 8, 'x': 2}[rest[1]]
	if rest[1] == 'x' {
		for digits < len(rest)-2 && digits < 8 && strings.IndexByte("0123456789abcdefABCDEF", rest[2+digits]) >= 0 {
			digits++ // all that follow
		}
	}
	if digits > 0 {
		if len(rest) < 2+digits {
			p.fail("Invalid escape sequence")
			return 0, false
		}
		r, err := strconv.ParseUint(rest[2:2+digits], 16, 32)
		if err != nil || r > utf8.MaxRune {
			p.fail("Invalid escape sequence %s", rest[:2+digits])
			return 0, false
		}
		p.at += 2 + digits
		return rune(r), true
	}
	const from, to = `nrtbfav0e`, "\n\r\t\b\f\a\v\x00\x1b"
	r, size := utf8.DecodeRuneInString(rest[1:])
	p.at += 1 + size
	if i := strings.IndexRune(from, r); i >= 0 {
		return rune(to[i]), true
	}
	if r < utf8.RuneSelf && (r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9') {
		p.at -= 1 + size
		p.fail("Invalid escape sequence \\%c", r)
		return 0, false
	}
	return r, true
}

// characters parses a character class of EBNF.
func (p *parser) characters() *node {
	p.at++
	negated := p.take("^")
	var pairs []rune
	for p.peek() != ']' {
		if p.peek() == '\\' && p.at+1 < len(p.text) && strings.IndexByte("dDsSwW", p.text[p.at+1]) >= 0 {
			return p.fail("Character class escape is not supported yet in EBNF")
		}
		low, ok := p.char()
		if !ok {
			return p.literal("")
		}
		high := low
		if p.peek() == '-' && !p.has("-]") {
			p.at++
			if high, ok = p.char(); !ok {
				return p.literal("")
			}
			if high < low {
				return p.fail("Invalid character class: lower bound is larger than upper bound")
			}
		}
		pairs = append(pairs, low, high)
	}
	p.at++
	pairs = normal(pairs)
	if negated {
		pairs = others(pairs)
	}
	return p.class(pairs, false)
}

// expression parses a regular expression of Lark.
func (p *parser) expression() *node {
	from := p.at
	for p.at++; p.peek() != '/'; p.at++ {
		if p.peek() == '\\' {
			p.at++
		}
		if c := p.peek(); c == 0 || c == '\n' {
			return p.fail("unterminated regular expression")
		}
	}
	pattern := p.text[from+1 : p.at]
	p.at++
	flags := syntax.Flags(0)
	for {
		switch c := p.peek(); c {
		case 'i':
			flags |= syntax.FoldCase
		case 's':
			flags |= syntax.DotNL
		case 'u':
		case 'l', 'm', 'x':
			return p.fail("regular-expression flag '%c' is not supported", c)
		default:
			n, err := p.regex(pattern, flags, false)
			if err != nil {
				return p.fail("%v", err)
			}
			return n
		}
		p.at++
	}
}

// json parses the JSON schema of Lark's %json.
func (p *parser) json() *node {
	p.blank()
	raw, err := firstValue(p.text[p.at:])
	if err != nil {
		return p.fail("%%json: %v", err)
	}
	v, err := parseValue(raw, p.spend)
	if err != nil {
		return p.fail("%%json: %v", err)
	}
	c := newCompiler(v, p.builder)
	n, err := c.schema(v, 0)
	if err != nil {
		return p.fail("%%json: %v", err)
	}
	p.at += len(raw)
	return n
}
