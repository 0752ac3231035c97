package parse

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Anthropic reads the Messages API. Its token counting endpoint is passed on
// unread.
type Anthropic struct{}

// Type is the parser's name in the configuration.
func (Anthropic) Type() string { return TypeAnthropic }

// Claims says whether the path ends in v1/messages or v1/messages/count_tokens.
func (Anthropic) Claims(path string) bool {
	return hasSuffix(path, "v1/messages") || hasSuffix(path, "v1/messages/count_tokens")
}

type anthropicBlock struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Content  json.RawMessage `json:"content"`
	Source   *struct {
		URL  string `json:"url"`
		Data string `json:"data"`
	} `json:"source"`
}

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
	b := &Body{Kind: Messages, Parser: TypeAnthropic, Raw: raw, MaxOutputTokens: -1}
	if hasSuffix(CleanPath(path), "v1/messages/count_tokens") {
		b.Kind, b.SkipResponse = Opaque, true
		return b, nil
	}
	m, err := readObject(raw)
	if err != nil {
		return nil, fmt.Errorf("error unmarshaling request body: %w", err)
	}
	var req struct {
		Messages []struct {
			Role    string           `json:"role"`
			Content anthropicContent `json:"content"`
		} `json:"messages"`
		System    anthropicContent `json:"system"`
		CacheSalt string           `json:"cache_salt"`
	}
	if err := json.Unmarshal(raw, &req); err != nil {
		return nil, fmt.Errorf("error parsing messages request: %w", err)
	}
	if len(req.Messages) == 0 {
		return nil, errors.New("invalid messages request: must have at least one message")
	}
	out := make([]byte, 0, len(raw))
	if v := m["tools"]; !isNull(v) && string(v) != "[]" {
		out = append(out, canonical(v)...)
	}
	out = b.anthropicContent(out, &req.System)
	for i := range req.Messages {
		out = append(out, req.Messages[i].Role...)
		out = b.anthropicContent(out, &req.Messages[i].Content)
	}
	b.Prompts = []Prompt{{Text: out}}
	b.CacheSalt = req.CacheSalt
	b.MaxOutputTokens = m.limit("max_tokens")
	b.Model, _ = m.text("model")
	b.Stream = m.isTrue("stream")
	return b, nil
}

func (b *Body) anthropicContent(out []byte, c *anthropicContent) []byte {
	out = append(out, c.text...)
	for i := range c.blocks {
		p := &c.blocks[i]
		switch p.Type {
		case "text":
			out = append(out, p.Text...)
		case "thinking":
			out = append(out, p.Thinking...)
		case "image":
			if p.Source != nil {
				out = b.asset(out, p.Source.URL+p.Source.Data, imageTokens)
			}
		case "tool_use":
			out = append(append(append(out, p.ID...), p.Name...), p.Input...)
		case "tool_result":
			var inner anthropicContent
			if !isNull(p.Content) && inner.UnmarshalJSON(p.Content) == nil {
				out = b.toolResult(out, &inner)
			}
		}
	}
	return out
}

// toolResult counts the texts and images of a tool's answer, one level deep.
func (b *Body) toolResult(out []byte, c *anthropicContent) []byte {
	out = append(out, c.text...)
	for i := range c.blocks {
		switch p := &c.blocks[i]; {
		case p.Type == "text":
			out = append(out, p.Text...)
		case p.Type == "image" && p.Source != nil:
			out = b.asset(out, p.Source.URL+p.Source.Data, imageTokens)
		}
	}
	return out
}
