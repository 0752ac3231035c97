package parse

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Anthropic reads the Messages API. Its token counting endpoint is passed on
// unread.
type Anthropic struct{}

// Type returns the parser's name in the configuration.
func (Anthropic) Type() string { return TypeAnthropic }

// Claims reports whether the path ends in messages or messages/count_tokens.
func (Anthropic) Claims(path string) bool {
	return hasSuffix(path, "messages") || hasSuffix(path, "messages/count_tokens")
}

type anthropicBlock struct {
	Type      string           `json:"type"`
	Text      string           `json:"text"`
	Thinking  string           `json:"thinking"`
	ID        string           `json:"id"`
	Name      string           `json:"name"`
	ToolUseID string           `json:"tool_use_id"`
	Input     json.RawMessage  `json:"input"`
	Content   anthropicContent `json:"content"`
	Source    *anthropicSource `json:"source"`
}

type anthropicSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	URL       string `json:"url"`
	Data      string `json:"data"`
}

type anthropicMessage struct {
	Role    string           `json:"role"`
	Content anthropicContent `json:"content"`
}

type anthropicTool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	Strict       *bool           `json:"strict,omitempty"`
	DeferLoading *bool           `json:"defer_loading,omitempty"`
}

type messagesRequest struct {
	Messages  []anthropicMessage `json:"messages"`
	System    anthropicContent   `json:"system"`
	Tools     []anthropicTool    `json:"tools"`
	CacheSalt string             `json:"cache_salt"`
}

// goNames replaces the names of these types with the real EPP's, since clients see them in the text of errors.
var goNames = strings.NewReplacer("messagesRequest.", "MessagesRequest.", "parse.wirePlaceholder",
	"requesthandling.wirePlaceholder",
	"parse.anthropicMessage", "requesthandling.AnthropicMessage", "anthropicMessage.", "AnthropicMessage.",
	"parse.anthropicTool", "requesthandling.AnthropicTool", "anthropicTool.", "AnthropicTool.")

type anthropicContent struct {
	text   string
	blocks []anthropicBlock
}

// UnmarshalJSON reads a string or an array of blocks.
func (c *anthropicContent) UnmarshalJSON(v []byte) error {
	if json.Unmarshal(v, &c.text) == nil {
		return nil
	}
	c.text = ""
	if json.Unmarshal(v, &c.blocks) == nil {
		return nil
	}
	return errors.New("anthropic content: must be a string or an array of content blocks")
}

// Parse reads a request body.
func (Anthropic) Parse(path string, raw []byte) (*Body, error) {
	b := &Body{Kind: Messages, Parser: TypeAnthropic, raw: raw, MaxOutputTokens: -1}
	path = CleanPath(path)
	if strings.HasSuffix(path, "/messages/count_tokens") {
		b.Kind, b.SkipResponse = Opaque, true
		return b, nil
	}
	if !strings.HasSuffix(path, "/messages") {
		return nil, fmt.Errorf("unsupported API endpoint: %s", path)
	}
	m, err := readObject(raw)
	if err != nil {
		return nil, fmt.Errorf("error unmarshaling request body: %w", err)
	}
	var req messagesRequest
	if err := json.Unmarshal(raw, &req); err != nil {
		return nil, errors.New("error parsing messages request: " + goNames.Replace(err.Error()))
	}
	if len(req.Messages) == 0 {
		return nil, errors.New("invalid messages request: must have at least one message")
	}
	out := make([]byte, 0, len(raw))
	if len(req.Tools) > 0 {
		if tools, err := json.Marshal(req.Tools); err == nil {
			out = append(out, tools...)
		}
	}
	out = append(out, req.System.system()...)
	for i := range req.Messages {
		out = append(out, req.Messages[i].Role...)
		out = b.anthropicContent(out, &req.Messages[i].Content)
		b.ContentParts = b.ContentParts || req.Messages[i].texts() > 1
	}
	b.ContentParts = b.ContentParts || b.Multimodal > 0
	b.Prompts = []Prompt{TextPrompt(out)}
	b.CacheSalt = req.CacheSalt
	b.MaxOutputTokens = m.limit("max_tokens")
	b.Model = m.text("model")
	b.Stream = m.isTrue("stream")
	return b, nil
}

// billing begins a text that a client's software puts into the system prompt
// and that changes with every request; it does not count.
const billing = "x-anthropic-billing-header"

// system returns the text of a system prompt.
func (c *anthropicContent) system() string {
	if c.text != "" {
		return c.text
	}
	var out strings.Builder
	for i := range c.blocks {
		if p := &c.blocks[i]; p.Type == "text" && !strings.HasPrefix(p.Text, billing) {
			out.WriteString(p.Text)
		}
	}
	return out.String()
}

// texts returns the parts of a message's content that are rendered as texts of their
// own; one alone is rendered as a text.
func (m *anthropicMessage) texts() (n int) {
	for i := range m.Content.blocks {
		p := &m.Content.blocks[i]
		if p.Type == "text" && p.Text != "" || p.Type == "tool_result" && m.Role != "user" {
			n++
		}
	}
	return n
}

func (b *Body) anthropicContent(out []byte, c *anthropicContent) []byte {
	if c.text != "" {
		return append(out, c.text...)
	}
	for i := range c.blocks {
		p := &c.blocks[i]
		switch p.Type {
		case "text":
			out = append(out, p.Text...)
		case "thinking":
			out = append(out, p.Thinking...)
		case "image":
			out = b.anthropicImage(out, p.Source)
		case "tool_use":
			out = append(append(append(out, p.ID...), p.Name...), p.Input...)
		case "tool_result":
			out = b.toolResult(out, &p.Content)
		}
	}
	return out
}

func (b *Body) anthropicImage(out []byte, s *anthropicSource) []byte {
	switch {
	case s == nil:
		return out
	case s.URL != "":
		return b.picture(out, s.URL, pictureURL(s.URL))
	case s.Data != "":
		return b.picture(out, s.Data, s.Data)
	}
	return out
}

// toolResult counts the texts of a tool's answer, one line each, and then its
// images, one level deep.
func (b *Body) toolResult(out []byte, c *anthropicContent) []byte {
	if c.text != "" {
		return append(out, c.text...)
	}
	first := true
	for i := range c.blocks {
		if p := &c.blocks[i]; p.Type == "text" {
			if !first {
				out = append(out, '\n')
			}
			out, first = append(out, p.Text...), false
		}
	}
	for i := range c.blocks {
		if p := &c.blocks[i]; p.Type == "image" {
			out = b.anthropicImage(out, p.Source)
		}
	}
	return out
}
