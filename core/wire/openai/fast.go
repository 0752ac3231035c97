package openai

import "github.com/windtunnel/windtunnel/core/wire/plainjson"

// reader parses the usual requests: flat fields, and messages with a role and a text. It needs less stack than
// encoding/json; a server keeps a goroutine's stack as long as its stream lasts. encoding/json parses all other
// requests.
type reader struct{ plainjson.Scanner }

// role parses a role, which is nearly always one of these.
func (s *reader) role(into *string) bool {
	before := s.Scanner
	inside, escaped, ok := s.Inside()
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
	s.Scanner = before
	return s.Text(into)
}

// fastChat parses a chat request. It returns false for one that encoding/json must parse. It stores messages in spare
// while that has capacity.
func fastChat(body []byte, c *Chat, spare []Message) bool {
	s := &reader{plainjson.Of(body)}
	number := func(to **int) bool {
		n, ok := s.Integer()
		*to = &n
		return ok
	}
	real := func(to **float64) bool {
		v, ok := s.Real()
		*to = &v
		return ok
	}
	ok := s.Object(func(name []byte) (uint32, bool) {
		switch string(name) {
		case "model":
			return 1, s.Text(&c.Model)
		case "messages":
			c.Messages = spare
			return 2, s.messages(&c.Messages)
		case "stream":
			return 4, s.Truth(&c.Stream)
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
			return 256, s.Truth(&c.IgnoreEOS)
		case "min_tokens":
			n, ok := s.Integer()
			c.MinTokens = n
			return 512, ok
		case "stream_options":
			c.StreamOptions = &StreamRequest{}
			return 1024, s.streamOptions(c.StreamOptions)
		case "response_format":
			return 2048, s.Value(&c.ResponseFormat)
		case "kv_transfer_params":
			return 4096, s.Value(&c.KVTransferParams)
		}
		return 0, false
	})
	return ok && s.Done()
}

func (s *reader) streamOptions(o *StreamRequest) bool {
	return s.Object(func(name []byte) (uint32, bool) {
		switch string(name) {
		case "include_usage":
			return 1, s.Truth(&o.IncludeUsage)
		case "continuous_usage_stats":
			return 2, s.Truth(&o.ContinuousUsage)
		}
		return 0, false
	})
}

func (s *reader) messages(into *[]Message) bool {
	return s.List(func() bool {
		*into = append(*into, Message{})
		m := &(*into)[len(*into)-1]
		return s.Object(func(name []byte) (uint32, bool) {
			switch string(name) {
			case "role":
				return 1, s.role(&m.Role)
			case "content":
				return 2, s.Text(&m.Content.Text)
			}
			return 0, false
		})
	}) && len(*into) > 0
}
