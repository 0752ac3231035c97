package modelserver

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// tokenize is a prompt's token ids: at least one.
func (s *Server) tokenize(text string) []uint32 {
	ids := s.tokenizer.Encode(make([]uint32, 0, len(text)/4+1), text)
	if len(ids) == 0 {
		ids = append(ids, 0)
	}
	return ids
}

// piecesOf is a text as tokens, each with the text that it completes.
func (s *Server) piecesOf(text string) []piece {
	var d tokens.Detokenizer
	var out []piece
	for _, id := range s.tokenizer.Encode(nil, text) {
		out = append(out, piece{id, d.Next(s.tokenizer, id)})
	}
	if rest := d.Rest(); rest != "" && len(out) > 0 {
		out[len(out)-1].text += rest
	}
	return out
}

// chatText is the prompt that a chat becomes.
func (s *Server) chatText(messages []openai.Message, tools []openai.Tool) string {
	turns := make([]tokens.Message, len(messages))
	for i, m := range messages {
		turns[i] = tokens.Message{Role: m.Role, Content: m.Content.Text}
		for _, p := range m.Content.Media {
			turns[i].Content += "<|" + p.Type + "|>"
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
	return s.template.Render(turns, schema.String(), true)
}

// vocabulary is the words that random content is made of. Each is one token of
// the server's tokenizer, so that a text says what its token ids say.
type vocabulary struct {
	words []string
	ids   []uint32
}

const vocabularySize = 512

func newVocabulary(t tokens.Tokenizer) *vocabulary {
	var v vocabulary
	add := func(word string) {
		if ids := t.Encode(nil, word); len(ids) == 1 {
			v.words, v.ids = append(v.words, word), append(v.ids, ids[0])
		}
	}
	for w := range strings.FieldsSeq(commonWords) {
		add(" " + w)
	}
	d := machine.NewDraw(0, "server", "vocabulary", 0)
	for range 20 * vocabularySize {
		if len(v.words) >= vocabularySize {
			break
		}
		add(tokens.Word(&d))
	}
	for c := byte('a'); c <= 'z' && len(v.words) == 0; c++ {
		// A vocabulary without words has letters, or it is none.
		v.words, v.ids = append(v.words, string(c)), append(v.ids, uint32(c))
	}
	return &v
}

const commonWords = `the wind rises over a long quiet field and one small wing turns slowly into flow while light falls on wood metal
	glass water stone sand smoke rain sound shape lift drag speed scale model test measure number figure result trace line curve
	point edge force weight balance pressure level stream tunnel fan blade motor engine signal cable sensor gauge table chart paper
	record note answer question reason method theory practice`

// pick is word number i of the text that base stands for.
func (v *vocabulary) pick(base uint64, i int) piece {
	z := base + uint64(i)*0x9e3779b97f4a7c15 // splitmix64 at its i-th step
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	n := (z >> 32) * uint64(len(v.words)) >> 32
	return piece{v.ids[n], v.words[n]}
}
