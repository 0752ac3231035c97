package structured

import (
	"slices"
	"strconv"
	"strings"
)

// alternatives parses elements that bars separate.
func (p *parser) alternatives() *node { return p.between(p.elements, p.bar) }

// bar skips a bar. In Lark, the bar may be at the beginning of the next line.
func (p *parser) bar() bool {
	from := p.at
	if p.blank(); p.take("|") {
		return true
	}
	p.at = from
	return false
}

// elements parses a sequence.
func (p *parser) elements() *node {
	var kids []*node
	for {
		p.space()
		c := p.peek()
		if c == 0 || c == '|' || c == ')' || c == ']' && p.dialect == lark || c == '\n' ||
			p.dialect == ebnf && p.beginsRule() {
			break
		}
		if p.dialect == lark && p.take("->") {
			p.space()
			p.name() // an alias for the parse tree
			break
		}
		if p.dialect == ebnf && p.has("(=") { // a lookahead hint
			p.at++
			p.bracket("=", ")")
			continue
		}
		kids = append(kids, p.repeated())
	}
	if len(kids) == 0 {
		return p.literal("")
	}
	return p.sequence(kids...)
}

// bracket parses alternatives between two marks.
func (p *parser) bracket(open, end string) *node {
	p.take(open)
	return p.within(func() *node {
		n := p.alternatives()
		if p.blank(); !p.take(end) {
			p.fail("Expect %s", end)
		}
		return n
	})
}

// repeated parses an element and its repetition.
func (p *parser) repeated() *node {
	n := p.element()
	for {
		if p.dialect == ebnf {
			from := p.at
			if p.blank(); !strings.ContainsRune("*+?{", rune(p.peek())) || p.peek() == 0 {
				p.at = from
				return n
			}
		}
		switch {
		case p.take("*"):
			n = p.repeat(n, 0, -1)
		case p.take("+"):
			n = p.repeat(n, 1, -1)
		case p.take("?"):
			n = p.repeat(n, 0, 1)
		case p.take("{"):
			n = p.times(n, ",", "}")
		case p.dialect == lark && p.take("~"):
			n = p.times(n, "..", "")
		default:
			return n
		}
	}
}

// times parses the number of repetitions of an element.
func (p *parser) times(n *node, to, end string) *node {
	p.space()
	least, some := p.integer()
	most := least
	if p.space(); p.take(to) {
		p.space()
		var limited bool
		if most, limited = p.integer(); !limited {
			most = -1
		}
		some = some || limited && p.dialect == lark
	}
	p.space()
	switch {
	case !some:
		return p.fail("Expect integer, but got %q", p.peek())
	case !p.take(end):
		return p.fail("Expect ',' or '}' in repetition range")
	case most >= 0 && most < least:
		return p.fail("Lower bound cannot be larger than upper bound")
	}
	return p.repeat(n, least, most)
}

func (p *parser) integer() (n int, ok bool) {
	from := p.at
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.at++
	}
	n, err := strconv.Atoi(p.text[from:p.at])
	return min(n, endless-1), err == nil || p.at > from
}

func (p *parser) element() *node {
	switch c := p.peek(); {
	case c == '(':
		return p.bracket("(", ")")
	case c == '[' && p.dialect == lark:
		return p.repeat(p.bracket("[", "]"), 0, 1)
	case c == '[':
		return p.characters()
	case c == '"':
		return p.string()
	case c == '/' && p.dialect == lark:
		return p.expression()
	case p.dialect == lark && p.take("%json"):
		return p.json()
	}
	at := p.at
	name := p.name()
	if name == "" {
		return p.fail("Expect element, but got %q", p.peek())
	}
	if p.peek() == '(' && p.dialect == ebnf && slices.Contains(macros, name) {
		p.at = at
		return p.fail("%s is not supported", name)
	}
	return p.named(name)
}
