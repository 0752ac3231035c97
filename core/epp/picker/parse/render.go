package parse

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
)

// RenderBody returns the body of a call to a renderer of prompts: the request in the form of OpenAI's API, for the
// model whose tokenizer the renderer has. A request of the Messages API becomes the chat that vLLM makes of it, without
// its other fields.
func RenderBody(b *Body, raw []byte, model string) ([]byte, error) {
	if b.Kind != Messages {
		return RewriteModel(raw, model)
	}
	var q messagesRequest
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, err
	}
	out := renderChat{Model: model, Messages: []renderMessage{}}
	out.system(q.System)
	for _, m := range q.Messages {
		if m.Role == "system" {
			out.system(m.Content)
		} else {
			out.message(m)
		}
	}
	for _, t := range q.Tools {
		f := renderFunction{Name: t.Name, Description: t.Description, Parameters: bytes.TrimSpace(t.InputSchema),
			Strict: t.Strict, DeferLoading: t.DeferLoading}
		if len(f.Parameters) == 0 || string(f.Parameters) == "null" {
			f.Parameters = json.RawMessage(`{"type":"object"}`)
		}
		out.Tools = append(out.Tools, renderTool{"function", f})
	}
	return json.Marshal(out)
}

type renderChat struct {
	Model    string          `json:"model"`
	Messages []renderMessage `json:"messages"`
	Tools    []renderTool    `json:"tools,omitempty"`
}

type renderMessage struct {
	Role       string           `json:"role"`
	Content    any              `json:"content,omitempty"` // text, parts, or nothing
	ToolCalls  []renderToolCall `json:"tool_calls,omitempty"`
	Reasoning  string           `json:"reasoning,omitempty"`
	ToolCallID string           `json:"tool_call_id,omitempty"`
}

type renderPart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text,omitempty"`
	ImageURL *renderImageURL `json:"image_url,omitempty"`
}

type renderImageURL struct {
	URL string `json:"url"`
}

type renderToolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type renderTool struct {
	Type     string         `json:"type"`
	Function renderFunction `json:"function"`
}

type renderFunction struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	Parameters   json.RawMessage `json:"parameters"`
	Strict       *bool           `json:"strict,omitempty"`
	DeferLoading *bool           `json:"defer_loading,omitempty"`
}

// system adds a system prompt.
func (c *renderChat) system(content anthropicContent) {
	if text := content.system(); text != "" {
		c.Messages = append(c.Messages, renderMessage{Role: "system", Content: text})
	}
}

// message adds a message. A user's results of tools become messages of their own
// and stand before it.
func (c *renderChat) message(m anthropicMessage) {
	if m.Content.text != "" {
		c.Messages = append(c.Messages, renderMessage{Role: m.Role, Content: m.Content.text})
		return
	}
	out := renderMessage{Role: m.Role}
	var parts []renderPart
	for _, b := range m.Content.blocks {
		switch b.Type {
		case "text":
			if b.Text != "" {
				parts = append(parts, renderPart{Type: "text", Text: b.Text})
			}
		case "image":
			parts = b.Source.appendTo(parts)
		case "thinking":
			out.Reasoning += b.Thinking
		case "tool_use":
			out.ToolCalls = append(out.ToolCalls, toolCall(b))
		case "tool_result":
			text, pictures := b.Content.result()
			if m.Role != "user" {
				parts = append(parts, renderPart{Type: "text", Text: "Tool result: " + text})
				break
			}
			c.Messages = append(c.Messages, renderMessage{Role: "tool", ToolCallID: b.ToolUseID, Content: text})
			if len(pictures) > 0 {
				c.Messages = append(c.Messages, renderMessage{Role: "user", Content: pictures})
			}
		}
	}
	switch {
	case len(parts) == 1 && parts[0].Type == "text":
		out.Content = parts[0].Text
	case len(parts) > 0:
		out.Content = parts
	case m.Role == "user":
		return
	}
	c.Messages = append(c.Messages, out)
}

// result returns a tool's answer: its texts, one on each line, and its pictures.
func (c anthropicContent) result() (text string, pictures []renderPart) {
	if c.text != "" {
		return c.text, nil
	}
	var lines []string
	for _, b := range c.blocks {
		switch b.Type {
		case "text":
			lines = append(lines, b.Text)
		case "image":
			pictures = b.Source.appendTo(pictures)
		}
	}
	return strings.Join(lines, "\n"), pictures
}

// appendTo adds a picture, if there is one.
func (s *anthropicSource) appendTo(parts []renderPart) []renderPart {
	if s == nil {
		return parts
	}
	url := s.URL
	if s.Type != "url" && url == "" && s.Data != "" {
		kind := cmp.Or(s.MediaType, "image/jpeg")
		url = "data:" + kind + ";base64," + s.Data
	}
	if url == "" {
		return parts
	}
	return append(parts, renderPart{Type: "image_url", ImageURL: &renderImageURL{url}})
}

func toolCall(b anthropicBlock) (c renderToolCall) {
	c.ID, c.Type = b.ID, "function"
	c.ID = cmp.Or(c.ID, "call_0000000000") // vLLM makes one up, as long
	c.Function.Name, c.Function.Arguments = b.Name, "{}"
	if raw := bytes.TrimSpace(b.Input); len(raw) > 0 && string(raw) != "null" {
		c.Function.Arguments = pythonJSON(raw)
	}
	return c
}

// pythonJSON is valid JSON as Python's json.dumps writes it, in the order and with
// the numbers that it has: what vLLM puts into the prompt.
func pythonJSON(raw []byte) string {
	var out strings.Builder
	for at := 0; at < len(raw); {
		switch c := raw[at]; c {
		case ' ', '\t', '\r', '\n':
			at++
		case ',', ':':
			out.WriteByte(c)
			out.WriteByte(' ')
			at++
		case '"':
			end := at + 1
			for ; end < len(raw) && raw[end] != '"'; end++ {
				if raw[end] == '\\' {
					end++
				}
			}
			end = min(end+1, len(raw))
			var text string
			_ = json.Unmarshal(raw[at:end], &text) // a string of valid JSON is one
			pythonString(&out, text)
			at = end
		default:
			out.WriteByte(c)
			at++
		}
	}
	return out.String()
}

func pythonString(out *strings.Builder, text string) {
	out.WriteByte('"')
	for _, r := range text {
		if at := strings.IndexRune("\"\\\b\f\n\r\t", r); at >= 0 {
			out.WriteByte('\\')
			out.WriteByte(`"\bfnrt`[at])
			continue
		}
		switch {
		case r >= 0x20 && r < 0x7f:
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(out, `\u%04x`, r)
		}
	}
	out.WriteByte('"')
}
