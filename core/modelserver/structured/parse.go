package structured

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// dialect is a way of writing grammars down.
type dialect uint8

const (
	ebnf dialect = iota // xgrammar's, and llama.cpp's GBNF
	lark
)

// IsLark tells whether a grammar is written as Lark has it: no line of it that is
// more than a comment has the ::= of EBNF before one that has none. It is
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

// Parse is the form of the texts of a grammar in EBNF or Lark.
func Parse(text string, spend func(int) bool) (*Grammar, error) {
	if IsLark(text) {
		return parse(text, lark, spend)
	}
	return parse(text, ebnf, spend)
}

func parse(text string, in dialect, spend func(int) bool) (*Grammar, error) {
	if err := tooLong("grammar", len(text)); err != nil {
		return nil, err
	}
	if !spend(grammarWork * len(text)) {
		return nil, errTooMuch
	}
	p := parser{builder: builder{spend: spend}, dialect: in, text: text, rules: map[string]*node{}, defined: map[string]bool{}}
	start := "root"
	if in == lark {
		start = "start"
	}
	for p.blank(); p.err == nil && p.at < len(text); p.blank() {
		if p.dialect == lark {
			p.item()
		} else {
			p.rule()
		}
	}
	for _, name := range p.order {
		if p.err == nil && !p.defined[name] {
			return nil, fmt.Errorf("Rule %q is not defined", name)
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	if !p.defined[start] {
		return nil, fmt.Errorf("The root rule with name %q is not found", start)
	}
	return p.grammar(p.rules[start])
}

// grammarWork is what reading one byte of a grammar takes.
const grammarWork = 64

// parser reads a grammar. After a mistake it is at the end of its text.
type parser struct {
	builder
	dialect dialect
	text    string
	at      int
	depth   int // of brackets
	rules   map[string]*node
	order   []string // rules, as they were first named
	defined map[string]bool
	err     error
}

func (p *parser) fail(format string, args ...any) *node {
	if p.err == nil {
		line := 1 + strings.Count(p.text[:p.at], "\n")
		column := p.at - strings.LastIndexByte(p.text[:p.at], '\n')
		p.err = fmt.Errorf("line %d, column %d: %s", line, column, fmt.Sprintf(format, args...))
	}
	p.at = len(p.text)
	return p.literal("")
}

// peek is the next byte, 0 at the end.
func (p *parser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *parser) has(prefix string) bool { return strings.HasPrefix(p.text[p.at:], prefix) }

// take skips what comes next, if it is this.
func (p *parser) take(prefix string) bool {
	if !p.has(prefix) {
		return false
	}
	p.at += len(prefix)
	return true
}

// blank skips white space and comments, and space stays on the line.
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

// name reads a rule's name; "" is none.
func (p *parser) name() string {
	from := p.at
	for p.at < len(p.text) {
		c := p.text[p.at]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || p.at > from && (c >= '0' && c <= '9' || c == '-' && !p.has("->") || c == '.' && p.dialect == ebnf) {
			p.at++
			continue
		}
		break
	}
	return p.text[from:p.at]
}

// named is the rule of a name, wherever it is defined.
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
	if p.err != nil {
		return
	}
	if p.defined[name] {
		p.fail("Rule %q is defined multiple times", name)
		return
	}
	p.defined[name] = true
	p.named(name).kids = []*node{body}
}

// rule reads a rule of EBNF.
func (p *parser) rule() {
	name := p.name()
	if p.blank(); name == "" || !p.take("::=") {
		p.fail("Expect rule name and ::=")
		return
	}
	body := p.alternatives()
	if p.err == nil && p.at < len(p.text) && !p.beginsRule() {
		p.fail("Expect element, but got %q", p.peek())
	}
	p.define(name, body)
}

// beginsRule tells whether a name and ::= come next.
func (p *parser) beginsRule() bool {
	from := p.at
	defer func() { p.at = from }()
	if p.name() == "" {
		return false
	}
	p.blank()
	return p.has("::=")
}

// item reads a rule, a terminal or a directive of Lark.
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
		return
	}
	switch p.peek() {
	case '.':
		p.fail("rule and terminal priorities are not supported")
	case '{':
		p.fail("Lark templates are not supported")
	case '[':
		p.fail("rule attributes are not supported")
	}
	if !p.take(":") && p.err == nil {
		p.fail("expected ':' after rule name")
	}
	body := p.alternatives()
	if p.space(); p.err == nil && p.peek() != '\n' && p.at < len(p.text) {
		p.fail("expected end of grammar item, got %q", p.peek())
	}
	p.define(name, body)
}

// directive reads a line that begins with %.
func (p *parser) directive() {
	switch {
	case p.take("%ignore"):
		p.alternatives() // what may stand between terminals need not
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
		return
	}
	add := func(name, as string) {
		expression, known := terminals[name]
		if !known {
			p.fail("unknown common import %q", name)
			return
		}
		body, err := p.regex(expression, 0, false)
		if err != nil {
			p.fail("%v", err)
		}
		p.define(as, body)
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
		return
	}
	for p.blank(); p.err == nil && !p.take(")"); p.blank() {
		name := p.name()
		add(name, name)
		if p.blank(); !p.take(",") && p.peek() != ')' {
			p.fail("expected , or ) in a list of imports")
		}
	}
}

// terminals are those of Lark's library.
var terminals = map[string]string{
	"DIGIT": `[0-9]`, "HEXDIGIT": `[0-9a-fA-F]`, "INT": `[0-9]+`, "SIGNED_INT": `[+-]?[0-9]+`,
	"DECIMAL": `[0-9]+\.[0-9]*|\.[0-9]+`, "_EXP": `[eE][+-]?[0-9]+`,
	"FLOAT":        `[0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?`,
	"SIGNED_FLOAT": `[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)`,
	"NUMBER":       `[0-9]+|[0-9]+\.[0-9]+`, "SIGNED_NUMBER": `[+-]?([0-9]+|[0-9]+\.[0-9]+)`,
	"ESCAPED_STRING": `"[a-zA-Z0-9 ]*"`, "LCASE_LETTER": `[a-z]`, "UCASE_LETTER": `[A-Z]`, "LETTER": `[a-zA-Z]`, "WORD": `[a-zA-Z]+`,
	"CNAME": `[a-zA-Z_][a-zA-Z0-9_]*`, "WS_INLINE": `[ \t]+`, "WS": `[ \t\f\r\n]+`, "CR": `\r`, "LF": `\n`, "NEWLINE": `(\r?\n)+`,
	"SH_COMMENT": `#[^\n]*`, "CPP_COMMENT": `//[^\n]*`, "C_COMMENT": `/\*[a-z ]*\*/`, "SQL_COMMENT": `--[^\n]*`,
}

// alternatives reads what stands between bars.
func (p *parser) alternatives() *node {
	kids := []*node{p.elements()}
	for p.bar() {
		kids = append(kids, p.elements())
	}
	return p.either(kids...)
}

// bar skips a bar; in Lark it may begin the next line.
func (p *parser) bar() bool {
	from := p.at
	if p.blank(); p.take("|") {
		return true
	}
	p.at = from
	return false
}

// elements reads a sequence.
func (p *parser) elements() *node {
	var kids []*node
	for {
		p.space()
		c := p.peek()
		if c == 0 || c == '|' || c == ')' || c == ']' && p.dialect == lark || c == '\n' || p.dialect == ebnf && p.beginsRule() {
			break
		}
		if p.dialect == lark && p.take("->") {
			p.space()
			p.name() // what the tree calls it
			break
		}
		if p.dialect == ebnf && p.has("(=") { // a hint about what follows
			p.at++
			p.bracket("=", ")")
			continue
		}
		if kids = append(kids, p.repeated()); p.err != nil {
			break
		}
	}
	if len(kids) == 0 {
		return p.literal("")
	}
	return p.sequence(kids...)
}

// bracket reads alternatives between two marks.
func (p *parser) bracket(open, end string) *node {
	p.take(open)
	if p.depth++; p.depth > maxDepth {
		return p.fail("Nest layer exceeded the maximum limit")
	}
	n := p.alternatives()
	if p.blank(); !p.take(end) {
		p.fail("Expect %s", end)
	}
	p.depth--
	return n
}

// repeated reads an element and how often it stands.
func (p *parser) repeated() *node {
	n := p.element()
	for p.err == nil {
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
	return n
}

// times reads how often an element stands.
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

// macros are xgrammar's, most of which are about a tokenizer's own tokens.
var macros = []string{"TagDispatch", "TokenTagDispatch", "Token", "ExcludeToken", "Regex", "Substring"}

// string reads a text, and in Lark a range of characters.
func (p *parser) string() *node {
	text, ok := p.quoted()
	if !ok {
		return p.literal("")
	}
	if p.dialect == ebnf {
		return p.literal(text)
	}
	if p.take("i") {
		return p.literal(text) // one of the ways of writing it
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

// char reads a character, or its escape.
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
			digits++ // as many as there are
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

// characters reads a class of EBNF.
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

// expression reads a regular expression of Lark.
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

// json reads a JSON schema of Lark's %json.
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
	p.builder = c.builder
	p.at += len(raw)
	return n
}
