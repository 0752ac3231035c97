package shell

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/pattern"
	"mvdan.cc/sh/v3/syntax"
)

// test reports whether [[ … ]] holds.
func (s *shell) test(x syntax.TestExpr) bool {
	switch x := x.(type) {
	case *syntax.ParenTest:
		return s.test(x.X)
	case *syntax.Word:
		return s.literal(x) != ""
	case *syntax.UnaryTest:
		if x.Op == syntax.TsNot {
			return !s.test(x.X)
		}
		if w, ok := x.X.(*syntax.Word); ok {
			return s.holds(x, []string{x.Op.String(), s.literal(w)})
		}
	case *syntax.BinaryTest:
		switch x.Op {
		case syntax.AndTest:
			return s.test(x.X) && s.test(x.Y)
		case syntax.OrTest:
			return s.test(x.X) || s.test(x.Y)
		}
		left, ok := x.X.(*syntax.Word)
		right, also := x.Y.(*syntax.Word)
		if !ok || !also {
			return false
		}
		switch word := s.literal(left); x.Op {
		case syntax.TsMatch, syntax.TsMatchShort:
			return s.match(word, right)
		case syntax.TsNoMatch:
			return !s.match(word, right)
		case syntax.TsReMatch:
			return s.matches(right, word, s.literal(right))
		default:
			return s.holds(x, []string{word, x.Op.String(), s.literal(right)})
		}
	}
	return false
}

// match reports whether a text has a shell pattern.
func (s *shell) match(text string, p *syntax.Word) bool {
	form, err := expand.Pattern(s.config, p)
	if err == nil && len(form) <= maxPattern {
		form, err = pattern.Regexp(form, pattern.EntireString)
	}
	if err != nil {
		s.fail(p, "%w", err)
		return false
	}
	return s.matches(p, text, form)
}

func (s *shell) matches(n syntax.Node, text, form string) bool {
	if len(form) > 4*maxPattern {
		s.fail(n, "a pattern of more than %d bytes", maxPattern)
		return false
	}
	re, err := regexp.Compile(form)
	if err != nil {
		s.fail(n, "%w", err)
		return false
	}
	return re.MatchString(text)
}

// holds reports whether the condition of test holds. No file exists.
func (s *shell) holds(n syntax.Node, args []string) bool {
	if len(args) > 1 && args[0] == "!" {
		return !s.holds(n, args[1:])
	}
	switch len(args) {
	case 0:
		return false
	case 1:
		return args[0] != ""
	case 2:
		switch args[0] {
		case "-n":
			return args[1] != ""
		case "-z":
			return args[1] == ""
		case "-v":
			return s.Get(args[1]).Set
		}
		return false
	case 3:
		if c, ok := compared[args[1]]; ok {
			a, errA := strconv.Atoi(strings.TrimSpace(args[0]))
			b, errB := strconv.Atoi(strings.TrimSpace(args[2]))
			return errA == nil && errB == nil && c(a, b)
		}
		switch args[1] {
		case "=", "==":
			return args[0] == args[2]
		case "!=":
			return args[0] != args[2]
		}
	}
	for _, join := range []string{"-o", "-a"} {
		if i := slices.Index(args, join); i > 0 {
			a, b := s.holds(n, args[:i]), s.holds(n, args[i+1:])
			return join == "-o" && (a || b) || a && b
		}
	}
	s.fail(n, "the condition %.60q; expected one of test's", strings.Join(args, " "))
	return false
}

// compared are test's comparisons of numbers.
var compared = map[string]func(a, b int) bool{
	"-eq": func(a, b int) bool { return a == b }, "-ne": func(a, b int) bool { return a != b },
	"-lt": func(a, b int) bool { return a < b }, "-le": func(a, b int) bool { return a <= b },
	"-gt": func(a, b int) bool { return a > b }, "-ge": func(a, b int) bool { return a >= b },
}
