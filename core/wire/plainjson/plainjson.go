// Package plainjson parses the JSON that nearly all messages of one kind have: objects of known fields, lists of them,
// and texts and numbers as programs write them. It is several times as fast as encoding/json. It leaves everything
// unknown or wrong to encoding/json, which then also reports the mistake.
package plainjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// Scanner parses a message from its beginning. Each of its methods returns false where it finds something else; the
// scanner is then unusable. It never panics.
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

// take skips white space and then this byte, if it is next.
func (s *Scanner) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// Inside returns the bytes between a string's quotes, and whether they have escapes.
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

// key returns a field's name, which must have no escapes, and skips its colon.
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

// Integer parses digits only. It leaves a sign, a fraction or an exponent to encoding/json.
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

// Real parses a number in JSON's syntax.
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

// after ends one element of a list or object. more is true after a comma.
func (s *Scanner) after(end byte) (more, ok bool) {
	if s.take(',') {
		return true, true
	}
	return false, s.take(end)
}

// Done reports whether only white space follows.
func (s *Scanner) Done() bool {
	s.space()
	return s.i == len(s.b)
}

// Object calls field for each field of an object, at most once for each name.
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

// List calls element for each element of a list.
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

// Skip skips a string, a number, true, false or null.
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

// Value copies an object unparsed.
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
		*into = append(json.RawMessage(nil), raw...) // callers reuse the body's memory
		return true
	}
	return false
}
