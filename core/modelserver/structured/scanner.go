package structured

import (
	"fmt"
	"strings"
)

// scanner iterates over the text of a form.
type scanner struct {
	*builder
	text  string
	at    int
	depth int           // of brackets
	place func() string // describes the position, for errors
}

// fail refuses the form. It never returns.
func (s *scanner) fail(format string, args ...any) *node {
	panic(refusal("%s: %s", s.place(), fmt.Sprintf(format, args...)))
}

// inside returns the node of a text in another syntax, at this position.
func (s *scanner) inside(f func() *node) *node {
	n, err := attempt(f)
	if err != nil {
		s.fail("%v", err)
	}
	return n
}

func (s *scanner) rest() string { return s.text[s.at:] }

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) has(prefix string) bool { return strings.HasPrefix(s.rest(), prefix) }

// take skips a prefix if it comes next.
func (s *scanner) take(prefix string) bool {
	if !s.has(prefix) {
		return false
	}
	s.at += len(prefix)
	return true
}

// between parses alternatives that bars separate.
func (s *scanner) between(one func() *node, bar func() bool) *node {
	kids := []*node{one()}
	for bar() {
		kids = append(kids, one())
	}
	return s.either(kids...)
}

// within parses the content of brackets. The depth of nested brackets is limited.
func (s *scanner) within(inside func() *node) *node {
	if s.depth++; s.depth > maxDepth {
		s.fail("Nest layer exceeded the maximum limit")
	}
	n := inside()
	s.depth--
	return n
}
