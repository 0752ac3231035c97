package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// scanner reads the JSON that nearly all requests consist of: flat fields,
// and messages with a role and a text. It is several times as fast as
// encoding/json and needs a shallow stack, which a server keeps for as long as
// a stream lasts. Whatever it does not know, or finds wrong, it leaves to
// encoding/json, which then also says what is wrong.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
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
func (s *scanner) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// raw is the inside of a string, and whether it has escapes.
func (s *scanner) raw() (inside []byte, escaped, ok bool) {
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

func (s *scanner) text(into *string) bool {
	start := s.i
	inside, escaped, ok := s.raw()
	if !ok {
		return false
	}
	if !escaped {
		*into = string(inside)
		return utf8.ValidString(*into)
	}
	return json.Unmarshal(s.b[start:s.i], into) == nil
}

// role reads a text that is nearly always one of these.
func (s *scanner) role(into *string) bool {
	start := s.i
	inside, escaped, ok := s.raw()
	if ok && !escaped {
		switch string(inside) {
		case "user":
			*into = "user"
			return true
		case "assistant":
			*into = "assistant"
			return true
		case "system":
			*into = "system"
			return true
		case "tool":
			*into = "tool"
			return true
		}
	}
	s.i = start
	return s.text(into)
}

// key is a field's name with its colon; it has no escapes.
func (s *scanner) key() ([]byte, bool) {
	inside, escaped, ok := s.raw()
	return inside, ok && !escaped && s.take(':')
}

func (s *scanner) word(w string) bool {
	s.space()
	if bytes.HasPrefix(s.b[s.i:], []byte(w)) {
		s.i += len(w)
		return true
	}
	return false
}

func (s *scanner) truth(into *bool) bool {
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

// integer reads digits alone; a sign, a fraction or an exponent is left to
// encoding/json.
func (s *scanner) integer() (int, bool) {
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

// real reads a number as JSON has it.
func (s *scanner) real() (float64, bool) {
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
func (s *scanner) after(end byte) (more, ok bool) {
	if s.take(',') {
		return true, true
	}
	return false, s.take(end)
}

func (s *scanner) done() bool {
	s.space()
	return s.i == len(s.b)
}

// object visits the fields of an object, each name at most once.
func (s *scanner) object(field func(name []byte) (bit uint32, ok bool)) bool {
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

// fastChat reads a chat request, or is false where encoding/json must. Messages
// are put into spare as long as it has room.
func fastChat(body []byte, c *Chat, spare []Message) bool {
	s := &scanner{b: body}
	number := func(to **int) bool {
		n, ok := s.integer()
		*to = &n
		return ok
	}
	real := func(to **float64) bool {
		v, ok := s.real()
		*to = &v
		return ok
	}
	ok := s.object(func(name []byte) (uint32, bool) {
		switch string(name) {
		case "model":
			return 1, s.text(&c.Model)
		case "messages":
			c.Messages = spare
			return 2, s.messages(&c.Messages)
		case "stream":
			return 4, s.truth(&c.Stream)
		case "max_tokens":
			return 8, number(&c.MaxTokens)
		case "max_completion_tokens":
			return 16, number(&c.MaxCompletionTokens)
		case "n":
			return 32, number(&c.N)
		case "temperature":
			return 64, real(&c.Temperature)
		case "top_p":
			return 128, real(&c.TopP)
		case "ignore_eos":
			return 256, s.truth(&c.IgnoreEOS)
		case "min_tokens":
			n, ok := s.integer()
			c.MinTokens = n
			return 512, ok
		case "stream_options":
			c.StreamOptions = &StreamRequest{}
			return 1024, s.streamOptions(c.StreamOptions)
		case "response_format":
			return 2048, s.value(&c.ResponseFormat)
		case "kv_transfer_params":
			return 4096, s.value(&c.KVTransferParams)
		}
		return 0, false
	})
	return ok && s.done()
}

// value reads an object as it stands.
func (s *scanner) value(into *json.RawMessage) bool {
	s.space()
	start, open := s.i, 0
	for first := true; s.i < len(s.b) && (first || open > 0); first = false {
		switch s.b[s.i] {
		case '{':
			open++
		case '}':
			open--
		case '"':
			if _, _, ok := s.raw(); !ok {
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

func (s *scanner) streamOptions(o *StreamRequest) bool {
	return s.object(func(name []byte) (uint32, bool) {
		switch string(name) {
		case "include_usage":
			return 1, s.truth(&o.IncludeUsage)
		case "continuous_usage_stats":
			return 2, s.truth(&o.ContinuousUsage)
		}
		return 0, false
	})
}

func (s *scanner) messages(into *[]Message) bool {
	if !s.take('[') {
		return false
	}
	for {
		*into = append(*into, Message{})
		m := &(*into)[len(*into)-1]
		if !s.object(func(name []byte) (uint32, bool) {
			switch string(name) {
			case "role":
				return 1, s.role(&m.Role)
			case "content":
				return 2, s.text(&m.Content.Text)
			}
			return 0, false
		}) {
			return false
		}
		more, ok := s.after(']')
		if !ok || !more {
			return ok
		}
	}
}
