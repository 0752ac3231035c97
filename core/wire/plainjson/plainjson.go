// Package plainjson reads the JSON that nearly all messages of one kind consist
// of: objects of known fields, lists of them, and texts and numbers as programs
// write them. It is several times as fast as encoding/json. Whatever it does not
// know, or finds wrong, is left to encoding/json, which then also says what is wrong.
package plainjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// Scanner reads a message from its beginning on. Each of its methods is false where
// it found something else, and the scanner is of no use then. It never panics.
type Scanner struct {
	b []byte
	i int
}

// Of returns a scanner at the beginning of a message.
func Of(message []byte) Scanner { return Scanner{b: message} }

func (s *Scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// take skips white space and then one byte, if it is this one.
func (s *Scanner) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// Inside returns the inside of a string, and whether it has escapes.
func (s *Scanner) Inside() (inside []byte, escaped, ok bool) {
	if !s.take('"') {
		return nil, false, false
	}
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1], escaped, true
		case c == '\\':
			escaped = true
			s.i += 2
		case c < 0x20:
			return nil, false, false
		default:
			s.i++
		}
	}
	return nil, false, false
}

// Text reads a string.
func (s *Scanner) Text(into *string) bool {
	start := s.i
	inside, escaped, ok := s.Inside()
	if !ok {
		return false
	}
	if !escaped {
		*into = string(inside)
		return utf8.ValidString(*into)
	}
	return json.Unmarshal(s.b[start:s.i], into) == nil
}

// key returns a field's name with its colon; it has no escapes.
func (s *Scanner) key() ([]byte, bool) {
	inside, escaped, ok := s.Inside()
	return inside, ok && !escaped && s.take(':')
}

func (s *Scanner) word(w string) bool {
	s.space()
	if bytes.HasPrefix(s.b[s.i:], []byte(w)) {
		s.i += len(w)
		return true
	}
	return false
}

// Truth reads true or false.
func (s *Scanner) Truth(into *bool) bool {
	switch {
	case s.word("true"):
		*into = true
	case s.word("false"):
		*into = false
	default:
		return false
	}
	return true
}

// Integer reads digits alone; a sign, a fraction or an exponent is left to
// encoding/json.
func (s *Scanner) Integer() (int, bool) {
	s.space()
	n, start := 0, s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		if n > 1<<40 {
			return 0, false
		}
		n = n*10 + int(s.b[s.i]-'0')
		s.i++
	}
	digits := s.i - start
	return n, digits > 0 && (digits == 1 || s.b[start] != '0')
}

// Real reads a number as JSON has it.
func (s *Scanner) Real() (float64, bool) {
	s.space()
	start := s.i
	for s.i < len(s.b) && (s.b[s.i] >= '0' && s.b[s.i] <= '9' || s.b[s.i] == '.') {
		s.i++
	}
	lit := s.b[start:s.i]
	if len(lit) == 0 || lit[0] == '.' || lit[len(lit)-1] == '.' || lit[0] == '0' && len(lit) > 1 && lit[1] != '.' {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(lit), 64)
	return v, err == nil
}

// after ends one element of a list or object: more is true behind a comma.
func (s *Scanner) after(end byte) (more, ok bool) {
	if s.take(',') {
		return true, true
	}
	return false, s.take(end)
}

// Done reports whether nothing follows but white space.
func (s *Scanner) Done() bool {
	s.space()
	return s.i == len(s.b)
}

// Object visits the fields of an object, each name at most once.
func (s *Scanner) Object(field func(name []byte) (bit uint32, ok bool)) bool {
	if !s.take('{') {
		return false
	}
	if s.take('}') {
		return true
	}
	seen := uint32(0)
	for {
		name, ok := s.key()
		if !ok {
			return false
		}
		bit, ok := field(name)
		if !ok || seen&bit != 0 {
			return false
		}
		seen |= bit
		more, ok := s.after('}')
		if !ok || !more {
			return ok
		}
	}
}

// List visits the elements of a list.
func (s *Scanner) List(element func() bool) bool {
	if !s.take('[') {
		return false
	}
	if s.take(']') {
		return true
	}
	for {
		if !element() {
			return false
		}
		more, ok := s.after(']')
		if !ok || !more {
			return ok
		}
	}
}

// Skip passes over a string, a number, true, false or null.
func (s *Scanner) Skip() bool {
	s.space()
	if s.i == len(s.b) {
		return false
	}
	switch s.b[s.i] {
	case '"':
		var text string
		return s.Text(&text)
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	_, ok := s.Real()
	return ok
}

// Value reads an object as it stands.
func (s *Scanner) Value(into *json.RawMessage) bool {
	s.space()
	start, open := s.i, 0
	for first := true; s.i < len(s.b) && (first || open > 0); first = false {
		switch s.b[s.i] {
		case '{':
			open++
		case '}':
			open--
		case '"':
			if _, _, ok := s.Inside(); !ok {
				return false
			}
			s.i--
		}
		s.i++
	}
	if raw := s.b[min(start, len(s.b)):min(s.i, len(s.b))]; json.Valid(raw) && raw[0] == '{' {
		*into = append(json.RawMessage(nil), raw...) // the body's memory is used again
		return true
	}
	return false
}
