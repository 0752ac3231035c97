package modelserver

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// tokenize returns a prompt's token ids: at least one.
func (r *Reader) tokenize(text string) []uint32 {
	ids := r.Tokenizer.Encode(make([]uint32, 0, len(text)/4+1), text)
	if len(ids) == 0 {
		ids = append(ids, 0)
	}
	return ids
}

// piecesOf tokenizes a text. Each token carries the text that it completes.
func (r *Reader) piecesOf(text string) []piece { return r.pieces(r.Tokenizer.Encode(nil, text)) }

// pieces returns tokens, each with the text that it completes.
func (r *Reader) pieces(ids []uint32) []piece {
	var d tokens.Detokenizer
	out := make([]piece, 0, len(ids))
	for _, id := range ids {
		out = append(out, piece{id, d.Next(r.Tokenizer, id)})
	}
	if rest := d.Rest(); rest != "" && len(out) > 0 {
		out[len(out)-1].text += rest
	}
	return out
}

// ChatText returns the prompt for a chat. A model's own template may refuse the chat, as in vLLM. Rendering stops early
// when the client has left; a nil client never leaves.
func (r *Reader) ChatText(c *openai.Chat, client chattemplate.Client) (text string, bad *openai.Error) {
	var err error
	if r.ChatTemplate == nil {
		text = r.framed(c)
		if n := len(c.Messages); c.ContinueFinalMessage && n > 0 {
			text, err = chattemplate.Continued(text, textOf(&c.Messages[n-1]))
		}
	} else {
		text, err = r.ChatTemplate.Render(conversation(c), client)
	}
	if err != nil {
		return "", openai.Errorf(400, "", "%v", err)
	}
	return text, nil
}

// answers reports whether a chat's prompt ends with the beginning of an answer.
func answers(c *openai.Chat) bool { return c.AddGenerationPrompt == nil || *c.AddGenerationPrompt }

// conversation converts a chat to the input of templates.
func conversation(c *openai.Chat) *chattemplate.Conversation {
	out := &chattemplate.Conversation{NoGenerationPrompt: !answers(c), Continue: c.ContinueFinalMessage,
		Variables: c.ChatTemplateKwargs,
		Messages:  make([]chattemplate.Message, len(c.Messages))}
	for i := range c.Messages {
		m := &c.Messages[i]
		turn := chattemplate.Message{Role: m.Role, Content: textOf(m), Name: m.Name, ToolCallID: m.ToolCallID}
		if len(m.Content.Media) == 0 {
			turn.Parts = m.Content.Texts
		}
		for _, call := range m.ToolCalls {
			turn.Calls = append(turn.Calls,
				chattemplate.Call{ID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments})
		}
		out.Messages[i] = turn
	}
	for i := range c.Tools {
		f := &c.Tools[i].Function
		raw := append(openai.AppendString([]byte(`{"type":"function","function":{"name":`), f.Name),
			`,"description":`...)
		if raw = openai.AppendString(raw, f.Description); f.Description == "" {
			raw = append(raw[:len(raw)-len(`""`)], "null"...)
		}
		raw = append(raw, `,"parameters":`...)
		if len(f.Parameters) == 0 {
			raw = append(raw, "null"...)
		} else {
			raw = append(raw, f.Parameters...)
		}
		out.Tools = append(out.Tools, append(raw, "}}"...))
	}
	return out
}

// textOf returns a message's text with the markers of its media.
func textOf(m *openai.Message) string {
	text := m.Content.Text
	for _, p := range m.Content.Media {
		text += marker(&p)
	}
	return text
}

// framed returns the prompt if the model's template is unknown.
func (r *Reader) framed(c *openai.Chat) string {
	turns := make([]tokens.Message, len(c.Messages))
	for i, m := range c.Messages {
		turns[i] = tokens.Message{Role: m.Role, Content: textOf(&m)}
		for _, call := range m.ToolCalls {
			turns[i].Content += call.Function.Name + "(" + call.Function.Arguments + ")"
		}
	}
	var schema strings.Builder
	for _, t := range c.Tools {
		schema.WriteString(t.Function.Name)
		schema.Write(t.Function.Parameters)
		schema.WriteByte('\n')
	}
	return r.Template.Render(turns, schema.String(), answers(c))
}
