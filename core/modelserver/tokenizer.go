package modelserver

import (
	"strings"

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
func (r *Reader) ChatText(messages []openai.Message) string { return r.chatText(messages, nil) }

// chatText is the prompt that a chat becomes.
func (r *Reader) chatText(messages []openai.Message, tools []openai.Tool) string {
	turns := make([]tokens.Message, len(messages))
	for i, m := range messages {
		turns[i] = tokens.Message{Role: m.Role, Content: m.Content.Text}
		for _, p := range m.Content.Media {
			turns[i].Content += marker(&p)
		}
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
