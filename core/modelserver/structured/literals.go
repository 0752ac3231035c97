package structured

import (
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"
)

// string parses a text and, in Lark, a range of characters.
func (p *parser) string() *node {
	text := p.quoted()
	if p.dialect == ebnf || p.take("i") {
		return p.literal(text) // after i, one of its spellings
	}
	from := p.at
	if p.space(); !p.take("..") {
		p.at = from
		return p.literal(text)
	}
	p.space()
	last := p.quoted()
	low, n := utf8.DecodeRuneInString(text)
	high, m := utf8.DecodeRuneInString(last)
	if n != len(text) || m != len(last) || low > high {
		return p.fail("character range endpoints must be one character each, in order")
	}
	return p.class([]rune{low, high}, false)
}

func (p *parser) quoted() string {
	if !p.take(`"`) {
		p.fail("Expect string literal")
	}
	var out []byte
	for p.peek() != '"' {
		out = utf8.AppendRune(out, p.char())
	}
	p.at++
	return string(out)
}

// char parses a character, or its escape.
func (p *parser) char() rune {
	switch p.peek() {
	case 0, '\n':
		p.fail("Expect \" or ] before the end of the line")
	case '\\':
	default:
		r, size := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += size
		return r
	}
	rest := p.text[p.at:]
	if len(rest) < 2 {
		p.fail("Invalid escape sequence")
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
		}
		r, err := strconv.ParseUint(rest[2:2+digits], 16, 32)
		if err != nil || r > utf8.MaxRune {
			p.fail("Invalid escape sequence %s", rest[:2+digits])
		}
		p.at += 2 + digits
		return rune(r)
	}
	const from, to = `nrtbfav0e`, "\n\r\t\b\f\a\v\x00\x1b"
	r, size := utf8.DecodeRuneInString(rest[1:])
	p.at += 1 + size
	if i := strings.IndexRune(from, r); i >= 0 {
		return rune(to[i])
	}
	if r < utf8.RuneSelf && (r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9') {
		p.at -= 1 + size
		p.fail("Invalid escape sequence \\%c", r)
	}
	return r
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
		low := p.char()
		high := low
		if p.peek() == '-' && !p.has("-]") {
			p.at++
			if high = p.char(); high < low {
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
			return p.inside(func() *node { return p.regex(pattern, flags, false) })
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
	n, err := attempt(func() *node { return p.jsonSchema(raw) })
	if err != nil {
		return p.fail("%%json: %v", err)
	}
	p.at += len(raw)
	return n
}
