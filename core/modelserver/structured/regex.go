package structured

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
)

// Regex is the form of a text that a regular expression matches as a whole.
func Regex(pattern string, spend func(int) bool) (*Grammar, error) {
	b := builder{spend: spend}
	root, err := b.regex(pattern, 0, false)
	if err != nil {
		return nil, err
	}
	return b.grammar(root)
}

// regexWork is what reading one byte of a regular expression takes.
const regexWork = 64

// regex makes a regular expression's nodes. quoted is where it says what stands
// within a JSON string.
func (b *builder) regex(pattern string, flags syntax.Flags, quoted bool) (*node, error) {
	if err := tooLong("regex", len(pattern)); err != nil {
		return nil, err
	}
	if !b.spend(regexWork * len(pattern)) {
		return nil, tooMuch
	}
	text, err := ofGo(pattern)
	if err != nil {
		return nil, err
	}
	re, err := syntax.Parse(text, syntax.Perl|flags)
	if err != nil {
		return nil, fmt.Errorf("regex parsing error: %w", err)
	}
	return b.regexNode(re, quoted)
}

// ofGo writes a pattern that JavaScript reads in Go's way. What neither xgrammar
// nor its stand-in can do is named as xgrammar names it.
func ofGo(pattern string) (string, error) {
	var out strings.Builder
	fail := func(at int, format string, args ...any) (string, error) {
		return "", fmt.Errorf("regex parsing error at position %d: %s", at+1, fmt.Sprintf(format, args...))
	}
	inClass := false
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch c := rest[0]; {
		case c == '\\' && len(rest) < 2:
			return fail(i, "Escape sequence is not finished.")
		case c == '\\':
			n := 2
			switch e := rest[1]; {
			case e == 'u' || e == 'x' && !strings.HasPrefix(rest, `\x{`):
				r, size, ok := codePoint(rest)
				if !ok {
					return fail(i, "Invalid Unicode escape sequence.")
				}
				fmt.Fprintf(&out, `\x{%x}`, r)
				n = size
			case e == 'c':
				if len(rest) < 3 || rest[2]|0x20 < 'a' || rest[2]|0x20 > 'z' {
					return fail(i, "Invalid control character escape sequence.")
				}
				fmt.Fprintf(&out, `\x{%x}`, rest[2]%32)
				n = 3
			case e == '0':
				out.WriteString(`\x00`)
			case e >= '1' && e <= '9' && !inClass, e == 'k':
				return fail(i, "Backreference is not supported yet.")
			case e == 'b' && inClass:
				out.WriteString(`\x08`)
			case e == 'b' || e == 'B':
				return fail(i, "Word boundary is not supported yet.")
			case e == '/' || e == '-' || e == '"' || e == '\'':
				out.WriteString(`\x` + strconv.FormatInt(int64(e), 16))
			default:
				out.WriteString(rest[:2])
			}
			i += n - 1
			continue
		case inClass:
			inClass = c != ']'
		case c == '[':
			inClass = true
			if strings.HasPrefix(rest, "[]") || strings.HasPrefix(rest, "[^]") && !strings.Contains(rest[3:], "]") {
				return fail(i, "Empty character class is not allowed in regex.")
			}
		case strings.HasPrefix(rest, "(?=") || strings.HasPrefix(rest, "(?!"):
			return fail(i, "Lookahead is not supported yet.")
		case strings.HasPrefix(rest, "(?<=") || strings.HasPrefix(rest, "(?<!"):
			return fail(i, "Lookbehind is not supported yet.")
		case c == '{':
			if high, size, ok := bigRange(rest); ok {
				out.WriteString(high)
				i += size - 1
				continue
			}
		}
		out.WriteByte(pattern[i])
	}
	return out.String(), nil
}

// codePoint reads \xHH, \uHHHH and \u{H…}.
func codePoint(s string) (r uint64, size int, ok bool) {
	digits, size := "", 4
	switch {
	case strings.HasPrefix(s, `\u{`):
		end := strings.IndexByte(s, '}')
		if end < 0 {
			return 0, 0, false
		}
		digits, size = s[3:end], end+1
	case s[1] == 'u':
		size = 6
		fallthrough
	default:
		if len(s) < size {
			return 0, 0, false
		}
		digits = s[2:size]
	}
	r, err := strconv.ParseUint(digits, 16, 21)
	return r, size, err == nil && r <= 0x10FFFF
}

// bigRange is a repetition of more than Go reads, with less: there are enough
// texts within.
func bigRange(s string) (less string, size int, ok bool) {
	const most = 1000 // of regexp/syntax
	end := strings.IndexByte(s, '}')
	if end < 0 {
		return "", 0, false
	}
	low, high, both := strings.Cut(s[1:end], ",")
	n, err := strconv.Atoi(low)
	if !both || err != nil || n > most {
		return "", 0, false
	}
	if m, err := strconv.Atoi(high); err != nil || m <= most {
		return "", 0, false
	}
	return fmt.Sprintf("{%d,%d}", n, most), end + 1, true
}

func (b *builder) regexNode(re *syntax.Regexp, quoted bool) (*node, error) {
	kids := make([]*node, len(re.Sub))
	for i, sub := range re.Sub {
		var err error
		if kids[i], err = b.regexNode(sub, quoted); err != nil {
			return nil, err
		}
	}
	switch re.Op {
	case syntax.OpNoMatch:
		return b.class(nil, quoted), nil
	case syntax.OpLiteral:
		text := string(re.Rune)
		if quoted {
			text = escaped(text)
		}
		return b.literal(text), nil
	case syntax.OpCharClass:
		return b.class(re.Rune, quoted), nil
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return b.class(scalar, quoted), nil
	case syntax.OpCapture:
		return kids[0], nil
	case syntax.OpStar:
		return b.repeat(kids[0], 0, -1), nil
	case syntax.OpPlus:
		return b.repeat(kids[0], 1, -1), nil
	case syntax.OpQuest:
		return b.repeat(kids[0], 0, 1), nil
	case syntax.OpRepeat:
		return b.repeat(kids[0], re.Min, re.Max), nil
	case syntax.OpConcat:
		return b.sequence(kids...), nil
	case syntax.OpAlternate:
		return b.either(kids...), nil
	case syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return nil, fmt.Errorf("regex parsing error: Word boundary is not supported yet.")
	}
	return b.literal(""), nil // the empty text, and what says where a text begins and ends
}

// class is one of the characters of pairs, which are in order; without any there
// is no such text.
func (b *builder) class(pairs []rune, quoted bool) *node {
	if s := newSet(pairs, quoted); s != nil {
		return b.node(node{kind: class, set: s})
	}
	return b.node(node{kind: either})
}
