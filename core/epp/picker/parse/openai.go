package parse

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// OpenAI reads the OpenAI APIs: chat completions, completions, embeddings,
// responses, conversations and images.
type OpenAI struct{}

var openAIPaths = []string{"chat/completions", "completions", "embeddings", "responses", "conversations",
	"chat/completions/render", "completions/render", "images/generations"}

// Type returns the parser's name in the configuration.
func (OpenAI) Type() string { return TypeOpenAI }

// Claims reports whether the path ends like one of the OpenAI APIs.
func (OpenAI) Claims(path string) bool { return hasAnySuffix(path, openAIPaths) }

func openAIKind(path string) Kind {
	path = CleanPath(path)
	switch {
	case hasSuffix(path, "conversations"):
		return Conversations
	case hasSuffix(path, "responses"):
		return Responses
	case hasSuffix(path, "chat/completions"), hasSuffix(path, "chat/completions/render"):
		return Chat
	case hasSuffix(path, "embeddings"):
		return Embeddings
	case hasSuffix(path, "images/generations"):
		return Images
	}
	return Completions // also a stream whose headers never came
}

// Parse reads a request body. The prompt is checked before the model.
func (OpenAI) Parse(path string, raw []byte) (*Body, error) {
	m, err := readObject(raw)
	if err != nil {
		return nil, fmt.Errorf("error unmarshaling request bodyMap: %w", err)
	}
	b := &Body{Kind: openAIKind(path), Parser: TypeOpenAI, raw: raw, MaxOutputTokens: -1}
	salt, err := m.optionalText("cache_salt")
	if err != nil {
		return nil, invalid(b.Kind)
	}
	b.CacheSalt = salt
	switch b.Kind {
	case Chat:
		err = errors.Join(b.chat(m), fits[[]any](m, "documents"), fits[string](m, "chat_template"),
			fits[bool](m, "return_assistant_tokens_mask"),
			fits[bool](m, "continue_final_message"), fits[bool](m, "add_generation_prompt"),
			fits[map[string]any](m, "chat_template_kwargs"))
		b.MaxOutputTokens = m.limit("max_completion_tokens", "max_tokens")
	case Completions:
		err = b.completions(m["prompt"])
		b.MaxOutputTokens = m.limit("max_tokens")
	case Embeddings:
		err = b.embeddings(m["input"])
	case Responses:
		err = b.responses(m)
		b.MaxOutputTokens = m.limit("max_output_tokens")
	case Conversations:
		err = errors.Join(b.conversations(m["items"]), fits[map[string]any](m, "metadata"))
	case Images:
		var s string
		if s, err = m.optionalText("prompt"); s == "" {
			err = errEmpty
		}
		// A picture's prompt fills no KV cache: it has no tokens to count or to find.
		err = errors.Join(err, fits[string](m, "size"), fits[int64](m, "n"), fits[int64](m, "num_inference_steps"))
	}
	if err != nil {
		return nil, invalid(b.Kind)
	}
	b.Model = m.text("model")
	b.Stream = m.isTrue("stream")
	return b, nil
}

// fits reports whether a field, if it is there, holds what the API has in it.
func fits[T any](m object, key string) error {
	v := m[key]
	if len(v) == 0 {
		return nil
	}
	var t T
	return json.Unmarshal(v, &t)
}

var errEmpty = errors.New("empty")

func invalid(k Kind) error {
	return errors.New("invalid " + map[Kind]string{
		Chat:          "chat completions request: must have valid messages field",
		Embeddings:    "embeddings request: must have input field",
		Responses:     "responses request: must have input field",
		Conversations: "conversations request: must have items field",
		Images:        "images generations request: must have prompt field",
		Completions:   "completions request: must have prompt field",
	}[k])
}

type chatMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []any           `json:"tool_calls"`
}

type contentPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
	InputAudio struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	} `json:"input_audio"`
	VideoURL struct {
		URL string `json:"url"`
	} `json:"video_url"`
}

func (b *Body) chat(m object) error {
	if len(m["messages"]) == 0 {
		return errEmpty
	}
	if len(m["tools"]) == 0 {
		if text, ok := plainMessages(m["messages"]); ok {
			b.Prompts = []Prompt{TextPrompt(text)}
			return nil
		}
	}
	var messages []chatMessage
	if err := json.Unmarshal(m["messages"], &messages); err != nil {
		return err
	}
	if len(messages) == 0 {
		return errEmpty
	}
	var tools []any
	if v := m["tools"]; len(v) > 0 {
		if err := json.Unmarshal(v, &tools); err != nil {
			return err
		}
	}
	out := make([]byte, 0, len(b.raw))
	if len(tools) > 0 {
		out = append(out, canonical(m["tools"])...)
	}
	for i := range messages {
		msg := &messages[i]
		out = append(out, msg.Role...)
		if isNull(msg.Content) {
			continue
		}
		var s string
		if json.Unmarshal(msg.Content, &s) == nil {
			out = append(out, s...)
			continue
		}
		var parts []contentPart
		if err := json.Unmarshal(msg.Content, &parts); err != nil {
			return err
		}
		b.ContentParts = b.ContentParts || len(parts) > 0
		for j := range parts {
			p := &parts[j]
			switch p.Type {
			case "text":
				out = append(out, p.Text...)
			case "image_url":
				out = b.picture(out, p.ImageURL.URL, pictureURL(p.ImageURL.URL))
			case "video_url":
				out = b.film(out, p.VideoURL.URL)
			case "input_audio", "audio_url":
				out = b.sound(out, p.InputAudio.Data+p.InputAudio.Format)
			}
		}
	}
	b.Prompts = []Prompt{TextPrompt(out)}
	return nil
}

// plainMessages reads a list of messages that have a role and a text and nothing else, as nearly every request does. It
// returns false for everything that encoding/json should judge. v is valid JSON.
func plainMessages(v json.RawMessage) ([]byte, bool) {
	list := gjson.Parse(view(v))
	if !list.IsArray() {
		return nil, false
	}
	out, any, plain := make([]byte, 0, len(v)), false, true
	list.ForEach(func(_, message gjson.Result) bool {
		var role, content string
		if plain = message.IsObject(); !plain {
			return false
		}
		message.ForEach(func(key, value gjson.Result) bool {
			// No escapes: then the text is the raw one without its quotes.
			plain = value.Type == gjson.String && strings.IndexByte(value.Raw, '\\') < 0 && utf8.ValidString(value.Raw)
			switch key.Raw {
			case `"role"`:
				role = value.Str
			case `"content"`:
				content = value.Str
			default: // other fields, and other spellings of these
				plain = false
			}
			return plain
		})
		out = append(append(out, role...), content...)
		any = true
		return plain
	})
	return out, plain && any
}

func (b *Body) completions(v json.RawMessage) error {
	text, texts, ids, err := stringOrArray(v)
	switch {
	case err != nil:
		return err
	case len(ids) > 0:
		b.Prompts = []Prompt{TokenPrompt(ids)}
	case len(texts) > 0:
		for _, s := range texts {
			b.Prompts = append(b.Prompts, TextPrompt([]byte(s)))
		}
	case text != "":
		b.Prompts = []Prompt{TextPrompt([]byte(text))}
	default:
		return errEmpty
	}
	return nil
}

func (b *Body) embeddings(v json.RawMessage) error {
	text, texts, ids, err := stringOrArray(v)
	switch {
	case err != nil:
		return err
	case len(ids) > 0:
		b.Prompts = []Prompt{TokenPrompt(ids)}
		return nil
	case len(texts) == 0 && text == "":
		return errEmpty
	}
	// A string and an array of one string are different prompts, as they are
	// to the real EPP, which counts the structure around them too.
	s, err := json.Marshal(struct {
		Raw      string
		Strings  []string
		TokenIDs []uint32
	}{text, texts, nil})
	b.Prompts = []Prompt{TextPrompt(s)}
	return err
}

func (b *Body) responses(m object) error {
	if isNull(m["input"]) {
		return errEmpty
	}
	out := []byte{'['}
	for _, key := range []string{"instructions", "tools", "input"} {
		if isNull(m[key]) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(append(append(out, '{', '"'), key...), '"', ':'), canonical(m[key])...), '}')
	}
	b.Prompts = []Prompt{TextPrompt(append(out, ']'))}
	return nil
}

func (b *Body) conversations(v json.RawMessage) error {
	var items []struct {
		Type    string `json:"type,omitempty"`
		Role    string `json:"role,omitempty"`
		Content any    `json:"content,omitempty"`
	}
	if len(v) == 0 {
		return errEmpty
	}
	if err := json.Unmarshal(v, &items); err != nil {
		return err
	}
	if len(items) == 0 {
		return errEmpty
	}
	s, err := json.Marshal(items)
	b.Prompts = []Prompt{TextPrompt(s)}
	return err
}
