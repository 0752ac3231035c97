package modelserver

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/chattemplate"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// tokenize is a prompt's token ids: at least one.
func (r *Reader) tokenize(text string) []uint32 {
	ids := r.Tokenizer.Encode(make([]uint32, 0, len(text)/4+1), text)
	if len(ids) == 0 {
		ids = append(ids, 0)
	}
	return ids
}

// piecesOf is a text as tokens, each with the text that it completes.
func (r *Reader) piecesOf(text string) []piece { return r.pieces(r.Tokenizer.Encode(nil, text)) }

// pieces are tokens, each with the text that it completes.
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

// ChatText is the prompt that a chat without tools becomes.
func (r *Reader) ChatText(messages []openai.Message) (string, *openai.Error) {
	return r.chatText(&openai.Chat{Messages: messages})
}

// chatText is the prompt that a chat becomes. A model's own template may refuse
// it, as in vLLM.
func (r *Reader) chatText(c *openai.Chat) (string, *openai.Error) {
	if r.ChatTemplate == nil {
		return r.framed(c.Messages, c.Tools), nil
	}
	text, err := r.ChatTemplate.Render(conversation(c))
	if err != nil {
		return "", openai.Errorf(400, "", "%v", err)
	}
	return text, nil
}

// conversation is a chat as templates see it.
func conversation(c *openai.Chat) *chattemplate.Conversation {
	out := &chattemplate.Conversation{NoGenerationPrompt: c.AddGenerationPrompt != nil && !*c.AddGenerationPrompt, Variables: c.ChatTemplateKwargs,
		Messages: make([]chattemplate.Message, len(c.Messages))}
	for i := range c.Messages {
		m := &c.Messages[i]
		turn := chattemplate.Message{Role: m.Role, Content: textOf(m), Name: m.Name, ToolCallID: m.ToolCallID}
		for _, call := range m.ToolCalls {
			turn.Calls = append(turn.Calls, chattemplate.Call{ID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments})
		}
		out.Messages[i] = turn
	}
	for i := range c.Tools {
		f := &c.Tools[i].Function
		raw := append(openai.AppendString([]byte(`{"type":"function","function":{"name":`), f.Name), `,"description":`...)
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

// textOf is a message's text with the marks of its media.
func textOf(m *openai.Message) string {
	text := m.Content.Text
	for _, p := range m.Content.Media {
		text += marker(&p)
	}
	return text
}

// framed is the prompt where the model's template is not known.
func (r *Reader) framed(messages []openai.Message, tools []openai.Tool) string {
	turns := make([]tokens.Message, len(messages))
	for i, m := range messages {
		turns[i] = tokens.Message{Role: m.Role, Content: textOf(&m)}
		for _, c := range m.ToolCalls {
			turns[i].Content += c.Function.Name + "(" + c.Function.Arguments + ")"
		}
	}
	var schema strings.Builder
	for _, t := range tools {
		schema.WriteString(t.Function.Name)
		schema.Write(t.Function.Parameters)
		schema.WriteByte('\n')
	}
	return r.Template.Render(turns, schema.String(), true)
}
