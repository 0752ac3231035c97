package described

import (
	"bytes"

	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Fields are the parts of a body outside its prompt. Requests that differ only in their prompts share one Fields.
type Fields struct {
	// Chat says that the prompt is a list of messages and not one text.
	Chat bool
	// Generate says that the body is not JSON but a GenerateRequest of vLLM's gRPC service in its frame. It begins with
	// the request's id and the prompt.
	Generate bool
	// Before and After are the bytes of the body around the messages, or around the prompt's string.
	Before, After []byte
	// Picker, Sidecar and ModelServer hold the values that each component has parsed from the fields.
	Picker, Sidecar, ModelServer any

	sorted bool // the fields of a message are in alphabetical order
	spelt  *scratch
}

// scratch is memory in which texts are written out.
type scratch struct{ b []byte }

// sample is a placeholder for the prompt.
const sample = "@"

// NewFields returns the fields of a body with the prompt "@". It returns nil where the body does not have that prompt
// exactly once.
func NewFields(chat bool, body []byte) *Fields {
	f := &Fields{Chat: chat, spelt: new(scratch)}
	return f.cut(body)
}

// NewGenerateFields returns the fields of a GenerateRequest, given the bytes after the prompt.
func NewGenerateFields(after []byte) *Fields {
	return &Fields{Generate: true, After: after, spelt: new(scratch)}
}

// cut removes the sample from a body.
func (f *Fields) cut(body []byte) *Fields {
	for _, f.sorted = range [2]bool{false, true} {
		prompt := f.prompt()
		if at := bytes.Index(body, prompt); at >= 0 && bytes.LastIndex(body, prompt) == at {
			f.Before, f.After = body[:at:at], body[at+len(prompt):]
			return f
		}
	}
	return nil
}

// prompt returns the sample in the form that it has in a body.
func (f *Fields) prompt() []byte {
	if !f.Chat {
		return []byte(`"` + sample + `"`)
	}
	first, between, last := f.message()
	if f.sorted {
		return []byte("[" + first + sample + between + "user" + last + "]")
	}
	return []byte("[" + first + "user" + between + sample + last + "]")
}

// message returns the text around a message's role and content, in the order of a body.
func (f *Fields) message() (first, between, last string) {
	if f.sorted {
		return `{"content":"`, `","role":"`, `"}`
	}
	return `{"role":"`, `","content":"`, `"}`
}

// Sample returns a whole body with these fields and a prompt of one character.
func (f *Fields) Sample() []byte {
	if f.Generate {
		b := NewBody(f, nil, NewMessage("user", nil, Literal(sample)))
		return b.Bytes()
	}
	return bytes.Join([][]byte{f.Before, f.After}, f.prompt())
}

// With returns the fields of another Sample with the same prompt. It returns nil where that body does not have the
// prompt exactly once.
func (f *Fields) With(sample []byte) *Fields {
	if f.Generate {
		return nil
	}
	g := &Fields{Chat: f.Chat, spelt: f.spelt}
	return g.cut(sample)
}

// Message is one message of a chat.
type Message struct {
	Role string
	// Shared, if not nil, is the beginning of the content.
	Shared *Shared
	Text   Text

	left, right int // white space around the content
}

// Shared is a beginning that several contents have in common.
type Shared struct {
	text  Text
	left  int // white space at the beginning
	all   bool
	known memory
}

// NewShared returns a beginning for several messages.
func NewShared(t Text) *Shared {
	s := &Shared{text: t}
	s.left, _ = t.margin()
	s.all = s.left == t.size
	return s
}

// NewMessage returns a message. shared may be nil.
func NewMessage(role string, shared *Shared, t Text) Message {
	m := Message{Role: role, Shared: shared, Text: t}
	m.left, m.right = t.margin()
	if shared == nil {
		return m
	}
	if m.left == t.size { // the white space continues into shared
		text := Literal(m.String())
		m.left, m.right = text.margin()
	} else if m.left = shared.left; shared.all {
		left, _ := t.margin()
		m.left += left
	}
	return m
}

// Len returns the content's length in bytes.
func (m *Message) Len() int {
	n := m.Text.size
	if m.Shared != nil {
		n += m.Shared.text.size
	}
	return n
}

// String returns the content.
func (m *Message) String() string {
	if m.Shared == nil {
		return m.Text.String()
	}
	return string(m.Text.Append(m.Shared.text.Append(make([]byte, 0, m.Len()))))
}

// append appends the first n bytes of the content, or all where there are fewer.
func (m *Message) append(b []byte, n int) []byte {
	if m.Shared != nil {
		b = m.Shared.text.append(b, n)
		n -= m.Shared.text.size
	}
	return m.Text.append(b, n)
}

// History holds the messages of a conversation that its next request repeats.
type History struct {
	messages []Message
	sums     sums
	known    memory
}

// sums are totals over messages, in messages and bytes.
type sums struct{ messages, roles, contents, margins int }

func (s *sums) add(m *Message) {
	s.messages++
	s.roles += len(m.Role)
	s.contents += m.Len()
	s.margins += m.left + m.right
}

// Add appends a message to the conversation.
func (h *History) Add(m Message) {
	h.messages = append(h.messages, m)
	h.sums.add(&m)
}

// Each yields all messages. A nil History has none.
func (h *History) Each(yield func(*Message)) {
	if h != nil {
		for i := range h.messages {
			yield(&h.messages[i])
		}
	}
}

// Body is the body of one request: shared Fields and a prompt of its own.
type Body struct {
	*Fields
	// Once says that no other request has the letters of this one's last message, and that no later request continues
	// it.
	Once    bool
	ID      string   // the request id of a GenerateRequest
	history *History // nil: none
	last    Message
	sums    sums // of all messages, including the last
}

// NewBody returns the body of a chat that continues a history, which may be nil, or of a completion whose only message
// is the last.
func NewBody(f *Fields, h *History, last Message) Body {
	b := Body{Fields: f, last: last}
	if h != nil && h.sums.messages > 0 && f.Chat {
		b.history, b.sums = h, h.sums
	}
	b.sums.add(&last)
	return b
}

// With returns the body with other fields and the same prompt.
func (b *Body) With(f *Fields) *Body {
	c := *b
	c.Fields = f
	return &c
}

// each yields the messages, beginning with message number from.
func (b *Body) each(from int, yield func(*Message)) {
	for i := from; i < b.sums.messages-1; i++ {
		yield(&b.history.messages[i])
	}
	yield(&b.last)
}

// Len returns the body's length in bytes.
func (b *Body) Len() int {
	n := len(b.Before) + len(b.After)
	if b.Generate {
		return n + generateLen(b.ID, b.sums.contents) + b.sums.contents
	}
	if !b.Chat {
		return n + len(`""`) + b.sums.contents
	}
	return n + len("[]") + b.sums.messages*len(`{"role":"","content":""},`) - len(",") + b.sums.roles + b.sums.contents
}

// Bytes returns the body's bytes, as a client sends them.
func (b *Body) Bytes() []byte { return b.AppendFirst(make([]byte, 0, b.Len()), b.Len()) }

// AppendFirst appends the first n bytes, or all where there are fewer.
func (b *Body) AppendFirst(out []byte, n int) []byte {
	end := len(out) + min(n, b.Len())
	if b.Generate {
		out = AppendGenerate(out, b.ID, b.sums.contents, len(b.After))
		return append(b.last.append(out, n), b.After...)[:end]
	}
	out = append(out, b.Before...)
	if !b.Chat {
		out = append(b.last.append(append(out, '"'), n), '"')
	} else {
		next := byte('[')
		first, between, last := b.message()
		b.each(0, func(m *Message) {
			if len(out) >= end {
				return
			}
			out = append(append(out, next), first...)
			if b.sorted {
				out = append(append(m.append(out, n), between...), m.Role...)
			} else {
				out = m.append(append(append(out, m.Role...), between...), n)
			}
			out, next = append(out, last...), ','
		})
		out = append(out, ']')
	}
	return append(out, b.After...)[:end]
}

// PromptLen returns the length of the prompt's text, in bytes. A chat's text follows a template and, with answer, ends
// where the answer begins.
func (b *Body) PromptLen(t *tokens.Template, answer bool) int {
	if !b.Chat {
		return b.sums.contents
	}
	n := len(t.Begin) + b.sums.messages*(len(t.Before)+len(t.After)+len(t.End)) + b.sums.roles + b.sums.contents
	if t.Trim {
		n -= b.sums.margins
	}
	if answer {
		for _, part := range t.Opening() {
			n += len(part)
		}
	}
	return n
}

// AppendPrompt appends the text that PromptLen measures.
func (b *Body) AppendPrompt(out []byte, t *tokens.Template, answer bool) []byte {
	if !b.Chat {
		return b.last.append(out, b.last.Len())
	}
	out = append(out, t.Begin...)
	b.each(0, func(m *Message) { out = m.spell(out, t, 0) })
	if answer {
		out = appendOpening(out, t)
	}
	return out
}

func appendOpening(out []byte, t *tokens.Template) []byte {
	for _, part := range t.Opening() {
		out = append(out, part...)
	}
	return out
}

// stage says how much of a message has been written.
type stage uint8

const (
	nothing stage = iota
	shared        // up to the end of its shared beginning
)

// spell appends a message under a template, after the part that from names.
func (m *Message) spell(out []byte, t *tokens.Template, from stage) []byte {
	if from == nothing {
		out = append(append(append(out, t.Before...), m.Role...), t.After...)
	}
	at := len(out)
	if from == nothing {
		out = m.append(out, m.Len())
	} else {
		out = m.Text.Append(out)
	}
	if t.Trim {
		out = out[:len(out)-m.right]
		if from == nothing && m.left > 0 {
			out = out[:at+copy(out[at:], out[at+m.left:])]
		}
	}
	return append(out, t.End...)
}
