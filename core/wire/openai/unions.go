package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
)

// Strings is a field that may be a string, a list of strings or null.
type Strings []string

// UnmarshalJSON reads each of these forms.
func (s *Strings) UnmarshalJSON(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) > 0 && raw[0] == '"':
		var one string
		if err := json.Unmarshal(raw, &one); err != nil {
			return err
		}
		*s = Strings{one}
	case len(raw) > 0 && raw[0] == '[':
		var many []string
		if err := json.Unmarshal(raw, &many); err != nil {
			return Invalidf("stop", "stop: expected a string or a list of strings, got a list of something else.")
		}
		*s = many
	case string(raw) == "null":
		*s = nil
	default:
		return Invalidf("stop", "stop: expected a string or a list of strings, got %s.", kindOf(raw))
	}
	return nil
}

// Prompt is the prompt field of /v1/completions: one or several texts or lists of token ids.
type Prompt struct {
	Texts  []string
	Tokens [][]uint32
}

// Len returns the number of prompts.
func (p *Prompt) Len() int { return len(p.Texts) + len(p.Tokens) }

// UnmarshalJSON reads a string, a list of strings, a list of token ids or a
// list of lists of token ids.
func (p *Prompt) UnmarshalJSON(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	bad := Invalidf("prompt",
		"prompt: expected a string, a list of strings, a list of token ids or a list of lists of token ids, got %s.",
		kindOf(raw))
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if raw[0] == '"' {
		var one string
		if err := json.Unmarshal(raw, &one); err != nil {
			return err
		}
		p.Texts = []string{one}
		return nil
	}
	if raw[0] != '[' {
		return bad
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return err
	}
	if len(items) == 0 {
		return nil
	}
	switch bytes.TrimSpace(items[0])[0] {
	case '"':
		if json.Unmarshal(raw, &p.Texts) != nil {
			return bad
		}
	case '[':
		if json.Unmarshal(raw, &p.Tokens) != nil {
			return bad
		}
		for _, t := range p.Tokens {
			if len(t) == 0 {
				return Invalidf("prompt", "prompt: expected at least one token id in every list.")
			}
		}
	default:
		var one []uint32
		if json.Unmarshal(raw, &one) != nil {
			return Invalidf("prompt",
				"prompt: expected token ids, integers from 0 to 4294967295, in a list that begins with one.")
		}
		p.Tokens = [][]uint32{one}
	}
	return nil
}

// Message is one turn of a conversation, as a client sends it.
type Message struct {
	Role       string     `json:"role"`
	Content    Content    `json:"content"`
	Name       string     `json:"name"`
	ToolCalls  []ToolCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`
}

// Content is a message's content: text, or parts of several types.
type Content struct {
	// Text is the text of a string content, or all text parts joined by line breaks. vLLM joins them like this for
	// templates that expect strings.
	Text string
	// Texts are the text parts, if there are several, for templates that expect parts.
	Texts []string
	// Media are the parts that are not text: images, audio, video.
	Media []Part
}

// Part is a content part that is not text.
type Part struct {
	Type string
	// URL is the part's address, or a data: URL with its bytes.
	URL string
}

// MaxParts limits the parts of one message.
const MaxParts = 4096

// UnmarshalJSON reads a string, a list of parts or null.
func (c *Content) UnmarshalJSON(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil
	case raw[0] == '"':
		return json.Unmarshal(raw, &c.Text)
	case raw[0] != '[':
		return Invalidf("messages", "messages.content: expected a string or a list of parts, got %s.", kindOf(raw))
	}
	var parts []struct {
		Type     string          `json:"type"`
		Text     *string         `json:"text"`
		Refusal  *string         `json:"refusal"`
		ImageURL json.RawMessage `json:"image_url"`
		VideoURL json.RawMessage `json:"video_url"`
		AudioURL json.RawMessage `json:"audio_url"`
		Audio    struct {
			Data string `json:"data"`
		} `json:"input_audio"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return Invalidf("messages", "messages.content: expected parts, each an object with a type: %v.", err)
	}
	if len(parts) > MaxParts {
		return Errorf(400, "messages", "messages.content: expected at most %d parts, got %d.", MaxParts, len(parts))
	}
	var texts []string
	for i, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text", "refusal":
			text := p.Text
			if p.Type == "refusal" {
				text = p.Refusal
			}
			if text == nil {
				return Invalidf("messages", "messages.content[%d].text: field required.", i)
			}
			texts = append(texts, *text)
		case "image_url", "input_image":
			c.Media = append(c.Media, Part{p.Type, urlOf(p.ImageURL)})
		case "video_url":
			c.Media = append(c.Media, Part{p.Type, urlOf(p.VideoURL)})
		case "audio_url":
			c.Media = append(c.Media, Part{p.Type, urlOf(p.AudioURL)})
		case "input_audio":
			c.Media = append(c.Media, Part{p.Type, p.Audio.Data})
		default:
			return Invalidf("messages",
				"messages.content[%d].type: unknown part type %q, expected text, image_url, video_url, audio_url or "+
					"input_audio.", i, p.Type)
		}
	}
	c.SetTexts(texts)
	return nil
}

// SetTexts replaces the text by these text parts.
func (c *Content) SetTexts(parts []string) {
	if c.Text = strings.Join(parts, "\n"); len(parts) > 1 {
		c.Texts = parts
	}
}

// urlOf reads "url" or {"url": "…"}.
func urlOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var o struct {
		URL string `json:"url"`
	}
	_ = json.Unmarshal(raw, &o) // an unreadable URL counts as empty, since only the number of parts matters
	return o.URL
}

// ToolChoice says whether a chat may or must call tools.
type ToolChoice struct {
	// Mode is none, auto, required or function. It is empty where the request has no tool_choice.
	Mode string
	// Name is the one function to call, when Mode is function.
	Name string
}

// UnmarshalJSON reads a word or {"type":"function","function":{"name":…}}.
func (t *ToolChoice) UnmarshalJSON(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return nil
	}
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &t.Mode); err != nil {
			return err
		}
		switch t.Mode {
		case "none", "auto", "required":
			return nil
		}
		return Invalidf("tool_choice", "tool_choice: expected none, auto, required or a named function, got %q.",
			t.Mode)
	}
	var named struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		return Invalidf("tool_choice", "tool_choice: expected none, auto, required or a named function, got %s.",
			kindOf(raw))
	}
	t.Mode, t.Name = "function", named.Function.Name
	t.Name = cmp.Or(t.Name, named.Name)
	if t.Name == "" {
		return Invalidf("tool_choice", "tool_choice.function.name: field required.")
	}
	return nil
}

// Tool is a function that a chat may call.
type Tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// ToolCall is a call that the model made.
type ToolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// MaxTools limits the tools of one request.
const MaxTools = 1024

func (c *Chat) checkTools() *Error {
	if len(c.Tools) > MaxTools {
		return Errorf(400, "tools", "tools: expected at most %d, got %d.", MaxTools, len(c.Tools))
	}
	known := c.ToolChoice.Mode != "function"
	for i, t := range c.Tools {
		if t.Function.Name == "" {
			return Invalidf("tools", "tools[%d].function.name: field required.", i)
		}
		known = known || t.Function.Name == c.ToolChoice.Name
	}
	switch c.ToolChoice.Mode {
	case "required", "function":
		if len(c.Tools) == 0 {
			return Errorf(400, "tool_choice", "When using `tool_choice`, `tools` must be set.")
		}
	}
	if !known {
		return Errorf(400, "tool_choice",
			"The tool specified in `tool_choice` does not match any of the specified `tools`: %q.", c.ToolChoice.Name)
	}
	return nil
}
