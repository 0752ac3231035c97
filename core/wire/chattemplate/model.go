package chattemplate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Model holds the files of a model that determine its prompts.
type Model struct {
	Tokenizer tokens.Tokenizer
	// JSON is the text of tokenizer.json, for clients that ask for it.
	JSON []byte
	// Template is nil where the model has none.
	Template *Template
	// Read lists the files that were read.
	Read []string
}

// maxConfigBytes limits a tokenizer_config.json, which lists added tokens.
const maxConfigBytes = 16 << 20

// tokenizerConfig holds the relevant fields of a tokenizer_config.json.
type tokenizerConfig struct {
	ChatTemplate json.RawMessage `json:"chat_template"`
	BOS          tokenText       `json:"bos_token"`
	EOS          tokenText       `json:"eos_token"`
	PAD          tokenText       `json:"pad_token"`
	UNK          tokenText       `json:"unk_token"`
}

// tokenText is a special token, written as its text or as an object with content.
type tokenText string

func (t *tokenText) UnmarshalJSON(raw []byte) error {
	var object struct{ Content string }
	if err := json.Unmarshal(raw, &object); err == nil {
		*t = tokenText(object.Content)
		return nil
	}
	return json.Unmarshal(raw, (*string)(t))
}

// Load reads a model's directory: tokenizer.json and, where they exist, tokenizer_config.json and chat_template.jinja.
// template, where it is not empty, is the file of a chat template that replaces the model's own (vLLM's
// --chat-template).
func Load(dir, template string, read Reading) (*Model, error) {
	m, err := LoadFile(path.Join(dir, "tokenizer.json"), "", read)
	if err != nil {
		return nil, err
	}
	var c tokenizerConfig
	name := path.Join(dir, "tokenizer_config.json")
	switch text, err := m.get(read, name, maxConfigBytes); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	special := map[string]string{"bos_token": string(c.BOS), "eos_token": string(c.EOS), "pad_token": string(c.PAD),
		"unk_token": string(c.UNK)}
	from, text := name, ""
	if text, err = c.template(name); err != nil {
		return nil, err
	}
	for _, file := range []string{template, path.Join(dir, "chat_template.jinja")} {
		if file == "" {
			continue
		}
		raw, err := m.get(read, file, MaxTemplateBytes)
		if err == nil {
			from, text = file, string(raw)
			break
		} else if file == template || !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if text != "" {
		m.Template, err = Parse(from, text, special)
	}
	return m, err
}

// LoadFile reads a single tokenizer.json and, if template is not empty, a chat template.
func LoadFile(name, template string, read Reading) (*Model, error) {
	m := &Model{}
	var err error
	if m.JSON, err = m.get(read, name, tokens.MaxFileBytes); err != nil {
		return nil, err
	}
	if m.Tokenizer, err = tokens.ParseTokenizerJSON(m.JSON); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if template != "" {
		text, err := m.get(read, template, MaxTemplateBytes)
		if err != nil {
			return nil, err
		}
		m.Template, err = Parse(template, string(text), nil)
		return m, err
	}
	return m, nil
}

// Reading reads a file of at most this many bytes.
type Reading = func(name string, most int64) ([]byte, error)

func (m *Model) get(read Reading, name string, most int64) ([]byte, error) {
	text, err := read(name, most)
	if err == nil {
		m.Read = append(m.Read, name)
	}
	return text, err
}

// template returns the chat template of a tokenizer_config.json: a text, or the one called "default" in a list.
func (c *tokenizerConfig) template(name string) (string, error) {
	var text string
	var named []struct{ Name, Template string }
	switch {
	case len(c.ChatTemplate) == 0 || json.Unmarshal(c.ChatTemplate, &text) == nil:
		return text, nil
	case json.Unmarshal(c.ChatTemplate, &named) != nil:
		return "", fmt.Errorf("%s: chat_template: expected a text, or a list of objects with name and template", name)
	}
	for _, t := range named {
		if t.Name == "default" {
			return t.Template, nil
		}
	}
	return "", fmt.Errorf("%s: chat_template: none of the %d templates is called default", name, len(named))
}
