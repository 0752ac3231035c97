package structured

import (
	"errors"
	"strings"
)

// scanner goes through a text that is a form. After a mistake it is at the end of its text.
type scanner struct {
	*builder
	text  string
	at    int
	depth int // of brackets
	err   error
}

// stop notes the first mistake.
func (s *scanner) stop(err error) *node {
	if s.err == nil {
		s.err = err
	}
	s.at = len(s.text)
	return s.literal("")
}

func (s *scanner) rest() string { return s.text[s.at:] }

// peek is the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) has(prefix string) bool { return strings.HasPrefix(s.rest(), prefix) }

// take skips what comes next, if it is this.
func (s *scanner) take(prefix string) bool {
	if !s.has(prefix) {
		return false
	}
	s.at += len(prefix)
	return true
}

// between reads what one reads between bars.
func (s *scanner) between(one func() *node, bar func() bool) *node {
	kids := []*node{one()}
	for !s.over() && bar() {
		kids = append(kids, one())
	}
	return s.either(kids...)
}

// within reads what stands in brackets, of which there may not be too many in each other.
func (s *scanner) within(inside func() *node) (*node, error) {
	if s.depth++; s.depth > maxDepth {
		return nil, errors.New("Nest layer exceeded the maximum limit")
	}
	n := inside()
	s.depth--
	return n, nil
}
