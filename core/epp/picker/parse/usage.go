package parse

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// count reads a JSON number, or a number inside a string as some providers
// send it.
func count(v json.RawMessage) (int, bool) {
	if isNull(v) {
		return 0, false
	}
	s := string(bytes.Trim(v, `"`))
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f < 1e15) {
		return 0, true
	}
	return int(f), true
}

func first(m object, keys ...string) int {
	for _, k := range keys {
		if n, ok := count(m[k]); ok {
			return n
		}
	}
	return 0
}

// openAIUsage reads the usage object of any OpenAI API.
func openAIUsage(v json.RawMessage) (u Usage, ok bool) {
	var m object
	if isNull(v) || json.Unmarshal(v, &m) != nil || m == nil {
		return u, false
	}
	u.PromptTokens = first(m, "prompt_tokens", "input_tokens")
	u.CompletionTokens = first(m, "completion_tokens", "output_tokens")
	u.TotalTokens = first(m, "total_tokens")
	for _, k := range []string{"prompt_tokens_details", "input_tokens_details"} {
		var d object
		if json.Unmarshal(m[k], &d) == nil {
			if n, ok := count(d["cached_tokens"]); ok {
				u.CachedTokens, u.HasCached = n, true
			}
		}
	}
	return u, true
}

// streamUsage is the usage object in an event of a stream. The real EPP is
// stricter there than in a whole response: numbers only, under these names.
type streamUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (s *streamUsage) usage() Usage {
	u := Usage{PromptTokens: s.Prompt, CompletionTokens: s.Completion, TotalTokens: s.Total}
	if s.Details != nil {
		u.CachedTokens, u.HasCached = s.Details.Cached, true
	}
	return u
}

// Usage reads the usage object of a JSON response, or of one event of a stream.
func (OpenAI) Usage(body []byte, streaming bool) (u Usage, ok bool) {
	if !streaming {
		var r struct {
			Usage json.RawMessage `json:"usage"`
		}
		if json.Unmarshal(body, &r) != nil {
			return u, false
		}
		return openAIUsage(r.Usage)
	}
	var e struct {
		Type     string       `json:"type"`
		Usage    *streamUsage `json:"usage"`
		Response struct {
			Usage json.RawMessage `json:"usage"`
		} `json:"response"`
	}
	switch {
	case !bytes.Contains(body, []byte(`"usage"`)) || json.Unmarshal(body, &e) != nil:
		return u, false
	case e.Usage != nil:
		return e.Usage.usage(), true
	case e.Type == "response.completed":
		return openAIUsage(e.Response.Usage)
	}
	return u, false
}

// Usage of vLLM's generate has the OpenAI shape.
func (VLLMHTTP) Usage(body []byte, streaming bool) (Usage, bool) {
	return OpenAI{}.Usage(body, streaming)
}

func anthropicUsage(v json.RawMessage) (u Usage, ok bool) {
	var m object
	if isNull(v) || json.Unmarshal(v, &m) != nil || m == nil {
		return u, false
	}
	u.PromptTokens = first(m, "input_tokens")
	u.CompletionTokens = first(m, "output_tokens")
	u.CachedTokens = first(m, "cache_read_input_tokens")
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u, true
}

// Usage reads the usage of a message, or of the message_start and
// message_delta events of a stream.
func (Anthropic) Usage(body []byte, streaming bool) (u Usage, ok bool) {
	var r struct {
		Usage   json.RawMessage `json:"usage"`
		Message struct {
			Usage json.RawMessage `json:"usage"`
		} `json:"message"`
	}
	if !streaming {
		if json.Unmarshal(body, &r) != nil {
			return u, false
		}
		return anthropicUsage(r.Usage)
	}
	if !bytes.Contains(body, []byte(`"usage"`)) || json.Unmarshal(body, &r) != nil {
		return u, false
	}
	for _, v := range []json.RawMessage{r.Message.Usage, r.Usage} {
		if got, is := anthropicUsage(v); is {
			u.PromptTokens = max(u.PromptTokens, got.PromptTokens)
			u.CompletionTokens = max(u.CompletionTokens, got.CompletionTokens)
			u.CachedTokens = max(u.CachedTokens, got.CachedTokens)
			ok = true
		}
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u, ok
}
