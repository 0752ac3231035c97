package structured

import (
	"fmt"
	"strings"
)

// dialect is the language of a grammar.
type dialect uint8

const (
	ebnf dialect = iota // xgrammar's, and llama.cpp's GBNF
	lark
)

// IsLark reports whether a grammar is in Lark: whether no line contains EBNF's ::= outside a comment. It follows
// vllm/v1/structured_output/utils.py: grammar_is_likely_lark.
func IsLark(text string) bool {
	for line := range strings.SplitSeq(text, "\n") {
		if i := strings.IndexByte(line, '#'); i >= 0 {
			line = line[:i]
		}
		if i := strings.Index(line, "//"); i >= 0 {
			line = line[:i]
		}
		if strings.Contains(line, "::=") {
			return false
		}
	}
	return true
}

// Parse returns the form of the texts that a grammar in EBNF or Lark allows.
func Parse(text string, spend func(int) bool) (*Grammar, error) {
	in := ebnf
	if IsLark(text) {
		in = lark
	}
	return build(spend, func(b *builder) *node { return b.parse(text, in) })
}

func (b *builder) parse(text string, in dialect) *node {
	notTooLong("grammar", len(text))
	b.spend(grammarWork * len(text))
	p := parser{scanner: scanner{builder: b, text: text}, dialect: in, rules: map[string]*node{},
		defined: map[string]bool{}}
	p.place = p.position
	start := "root"
	if in == lark {
		start = "start"
	}
	for p.blank(); p.at < len(text); p.blank() {
		if p.dialect == lark {
			p.item()
		} else {
			p.rule()
		}
	}
	for _, name := range p.order {
		if !p.defined[name] {
			panic(refusal("Rule %q is not defined", name))
		}
	}
	if !p.defined[start] {
		panic(refusal("The root rule with name %q is not found", start))
	}
	return p.rules[start]
}

// grammarWork is the work of parsing one byte of a grammar.
const grammarWork = 64

// parser parses a grammar.
type parser struct {
	scanner
	dialect dialect
	rules   map[string]*node
	order   []string // rules, in the order of their first mention
	defined map[string]bool
}

func (p *parser) position() string {
	line := 1 + strings.Count(p.text[:p.at], "\n")
	column := p.at - strings.LastIndexByte(p.text[:p.at], '\n')
	return fmt.Sprintf("line %d, column %d", line, column)
}

// blank skips white space and comments; space does so within the line.
func (p *parser) blank() { p.skip(true) }

func (p *parser) space() { p.skip(p.dialect == ebnf || p.depth > 0) }

func (p *parser) skip(lines bool) {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' && lines:
			p.at++
		case c == '#' || p.dialect == lark && p.has("//"):
			if end := strings.IndexByte(p.text[p.at:], '\n'); end >= 0 {
				p.at += end
			} else {
				p.at = len(p.text)
			}
		default:
			return
		}
	}
}

// name parses a rule's name; "" is none.
func (p *parser) name() string {
	from := p.at
	for p.at < len(p.text) {
		c := p.text[p.at]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || p.at > from &&
			(c >= '0' && c <= '9' || c == '-' && !p.has("->") || c == '.' && p.dialect == ebnf) {
			p.at++
			continue
		}
		break
	}
	return p.text[from:p.at]
}

// named returns the rule with a name, wherever the grammar defines it.
func (p *parser) named(name string) *node {
	n := p.rules[name]
	if n == nil {
		n = p.node(node{kind: sequence})
		p.rules[name] = n
		p.order = append(p.order, name)
	}
	return n
}

func (p *parser) define(name string, body *node) {
	if p.defined[name] {
		p.fail("Rule %q is defined multiple times", name)
	}
	p.defined[name] = true
	p.named(name).kids = []*node{body}
}

// rule parses a rule of EBNF.
func (p *parser) rule() {
	name := p.name()
	if p.blank(); name == "" || !p.take("::=") {
		p.fail("Expect rule name and ::=")
	}
	body := p.alternatives()
	if p.at < len(p.text) && !p.beginsRule() {
		p.fail("Expect element, but got %q", p.peek())
	}
	p.define(name, body)
}

// beginsRule reports whether a name and ::= come next.
func (p *parser) beginsRule() bool {
	from := p.at
	defer func() { p.at = from }()
	if p.name() == "" {
		return false
	}
	p.blank()
	return p.has("::=")
}

// item parses a rule, a terminal or a directive of Lark.
func (p *parser) item() {
	if p.peek() == '%' {
		p.directive()
		return
	}
	for p.take("?") || p.take("!") {
	}
	name := p.name()
	p.space()
	if name == "" {
		p.fail("expected a rule, a terminal or a directive")
	}
	switch p.peek() {
	case '.':
		p.fail("rule and terminal priorities are not supported")
	case '{':
		p.fail("Lark templates are not supported")
	case '[':
		p.fail("rule attributes are not supported")
	}
	if !p.take(":") {
		p.fail("expected ':' after rule name")
	}
	body := p.alternatives()
	if p.space(); p.peek() != '\n' && p.at < len(p.text) {
		p.fail("expected end of grammar item, got %q", p.peek())
	}
	p.define(name, body)
}

// directive parses a line that begins with %.
func (p *parser) directive() {
	switch {
	case p.take("%ignore"):
		p.alternatives() // ignored text between terminals is optional
	case p.take("%import"):
		p.space()
		p.imports()
	default:
		p.fail("directive is not supported, expected %%import or %%ignore")
	}
}

func (p *parser) imports() {
	if !p.take("common") {
		p.fail("only common can be imported")
	}
	add := func(name, as string) {
		expression, known := terminals[name]
		if !known {
			p.fail("unknown common import %q", name)
		}
		p.define(as, p.regex(expression, 0, false))
	}
	if p.take(".") {
		name := p.name()
		as := name
		if p.space(); p.take("->") {
			p.space()
			as = p.name()
		}
		add(name, as)
		return
	}
	if p.space(); !p.take("(") {
		p.fail("expected .NAME or (NAMES)")
	}
	for p.blank(); !p.take(")"); p.blank() {
		name := p.name()
		add(name, name)
		if p.blank(); !p.take(",") && p.peek() != ')' {
			p.fail("expected , or ) in a list of imports")
		}
	}
}

// terminals holds the terminals of Lark's library.
var terminals = map[string]string{
	"DIGIT": `[0-9]`, "HEXDIGIT": `[0-9a-fA-F]`, "INT": `[0-9]+`, "SIGNED_INT": `[+-]?[0-9]+`,
	"DECIMAL": `[0-9]+\.[0-9]*|\.[0-9]+`, "_EXP": `[eE][+-]?[0-9]+`,
	"FLOAT":        `[0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?`,
	"SIGNED_FLOAT": `[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)`,
	"NUMBER":       `[0-9]+|[0-9]+\.[0-9]+`, "SIGNED_NUMBER": `[+-]?([0-9]+|[0-9]+\.[0-9]+)`,
	"ESCAPED_STRING": `"[a-zA-Z0-9 ]*"`, "LCASE_LETTER": `[a-z]`, "UCASE_LETTER": `[A-Z]`, "LETTER": `[a-zA-Z]`,
	"WORD":  `[a-zA-Z]+`,
	"CNAME": `[a-zA-Z_][a-zA-Z0-9_]*`, "WS_INLINE": `[ \t]+`, "WS": `[ \t\f\r\n]+`, "CR": `\r`, "LF": `\n`,
	"NEWLINE":    `(\r?\n)+`,
	"SH_COMMENT": `#[^\n]*`, "CPP_COMMENT": `//[^\n]*`, "C_COMMENT": `/\*[a-z ]*\*/`, "SQL_COMMENT": `--[^\n]*`,
}

// macros are xgrammar's. Most are about a tokenizer's own tokens.
var macros = []string{"TagDispatch", "TokenTagDispatch", "Token", "ExcludeToken", "Regex", "Substring"}
