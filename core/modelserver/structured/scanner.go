package structured

import (
	"errors"
	"strings"
)

// scanner iterates over the text of a form. After an error it is at the end of the text.
type scanner struct {
	*builder
	text  string
	at    int
	depth int // of brackets
	err   error
}

// stop records the first error.
func (s *scanner) stop(err error) *node {
	if s.err == nil {
		s.err = err
	}
	s.at = len(s.text)
	return s.literal("")
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
	for !s.over() && bar() {
		kids = append(kids, one())
	}
	return s.either(kids...)
}

// within parses the content of brackets. The depth of nested brackets is limited.
func (s *scanner) within(inside func() *node) (*node, error) {
	if s.depth++; s.depth > maxDepth {
		return nil, errors.New("Nest layer exceeded the maximum limit")
	}
	n := inside()
	s.depth--
	return n, nil
}
