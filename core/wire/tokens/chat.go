package tokens

import "strings"

// Message is one turn of a conversation. Its content is already plain text.
type Message struct{ Role, Content string }

// Template writes a conversation as one prompt. It replaces the Jinja template of a model's tokenizer_config.json: it
// has the same frame around each turn, without the model's own additions (dates, tool instructions).
type Template struct {
	Name   string
	Begin  string // before everything
	Before string // before a role
	After  string // between role and content
	End    string // after a content
	Trim   bool   // drops white space around contents
	// AnswerRole is the role in the generation prompt.
	AnswerRole string
}

// The frames that models use today.
var (
	// ChatML is the frame of Qwen and many others, and the default.
	ChatML = Template{Name: "chatml", Before: "<|im_start|>", After: "\n", End: "<|im_end|>\n", AnswerRole: "assistant"}
	// Llama3 is the frame of Llama 3 and later.
	Llama3 = Template{Name: "llama3", Begin: "<|begin_of_text|>", Before: "<|start_header_id|>",
		After: "<|end_header_id|>\n\n", End: "<|eot_id|>", Trim: true, AnswerRole: "assistant"}
	// Harmony is the frame of gpt-oss.
	Harmony = Template{Name: "harmony", Before: "<|start|>", After: "<|message|>", End: "<|end|>",
		AnswerRole: "assistant"}
)

// TemplateFor returns the frame for a model, by its name.
func TemplateFor(model string) Template {
	model = strings.ToLower(model)
	switch {
	case strings.Contains(model, "llama-3") || strings.Contains(model, "llama3") || strings.Contains(model, "llama-4"):
		return Llama3
	case strings.Contains(model, "gpt-oss"):
		return Harmony
	}
	return ChatML
}

// Render returns the conversation as a prompt. tools, if not empty, is the JSON of the tool definitions and becomes a
// system turn of its own. With answer, the prompt ends where the model's answer begins.
func (t Template) Render(messages []Message, tools string, answer bool) string {
	var b strings.Builder
	size := len(t.Begin) + len(tools)
	for _, m := range messages {
		size += len(m.Role) + len(m.Content)
	}
	b.Grow(size + (len(messages)+2)*(len(t.Before)+len(t.After)+len(t.End)+len("assistant")))
	b.WriteString(t.Begin)
	turn := func(role, content string) {
		if t.Trim {
			content = strings.TrimSpace(content)
		}
		for _, part := range [...]string{t.Before, role, t.After, content, t.End} {
			b.WriteString(part)
		}
	}
	if tools != "" {
		turn("system", tools)
	}
	for _, m := range messages {
		turn(m.Role, m.Content)
	}
	if answer {
		for _, part := range t.Opening() {
			b.WriteString(part)
		}
	}
	return b.String()
}

// Opening returns the text right before the model's answer, in parts.
func (t *Template) Opening() [3]string {
	if t.Name == Harmony.Name { // gpt-oss opens a channel itself
		return [3]string{t.Before, t.AnswerRole}
	}
	return [3]string{t.Before, t.AnswerRole, t.After}
}
