package chattemplate

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// A model's directory loads in the format that transformers writes now, and in its former one. An error names the file
// that cannot be read.
func TestLoad(t *testing.T) {
	tokenizer, err := os.ReadFile("../tokens/testdata/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	hello := &Conversation{Messages: []Message{{Role: "user", Content: "hello"}}}
	for name, c := range map[string]struct {
		files         map[string]string
		template      string
		prompt, wrong string
	}{
		"a tokenizer alone": {},
		"a template in the configuration": {
			files: map[string]string{
				"m/tokenizer_config.json": `{"chat_template":"{{ bos_token }}{{ messages[0].content }}",` +
					`"bos_token":"<s>"}`}, prompt: "<s>hello"},
		"a token as an object": {
			files: map[string]string{
				"m/tokenizer_config.json": `{"chat_template":"{{ messages[0].content }}{{ eos_token }}",` +
					`"eos_token":{"content":"</s>"},"pad_token":null}`}, prompt: "hello</s>"},
		"several templates": {
			files: map[string]string{
				"m/tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"t"},{"name":"default",` +
					`"template":"d"}]}`}, prompt: "d"},
		"a template of its own": {
			files:  map[string]string{"m/tokenizer_config.json": `{"chat_template":"c"}`, "m/chat_template.jinja": "j"},
			prompt: "j"},
		"a template that was asked for": {
			files:    map[string]string{"m/chat_template.jinja": "j", "mine.jinja": "{{ messages[0].role }}"},
			template: "mine.jinja", prompt: "user"},
		"one that is not there": {template: "none.jinja", wrong: "none.jinja"},
		"no default": {
			files: map[string]string{"m/tokenizer_config.json": `{"chat_template":[{"name":"x","template":"t"}]}`},
			wrong: "m/tokenizer_config.json: chat_template: none of the 1 templates is called default"},
		"another type": {files: map[string]string{"m/tokenizer_config.json": `{"chat_template":1}`},
			wrong: "m/tokenizer_config.json: chat_template: expected a text"},
		"no JSON": {files: map[string]string{"m/tokenizer_config.json": `{`},
			wrong: "m/tokenizer_config.json"},
		"a tag that is not read": {files: map[string]string{"m/chat_template.jinja": "a\n{% extends 'x' %}"},
			wrong: `m/chat_template.jinja: line 2: the tag "extends"`},
		"no tokenizer": {files: map[string]string{"m/tokenizer.json": ""}, wrong: "m/tokenizer.json"},
	} {
		read := func(file string, most int64) ([]byte, error) {
			if text, ok := c.files[file]; ok {
				return []byte(text), nil
			}
			if file == "m/tokenizer.json" {
				return tokenizer, nil
			}
			return nil, &fs.PathError{Op: "open", Path: file, Err: fs.ErrNotExist}
		}
		m, err := Load("m", c.template, read)
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, expected %q", name, err, c.wrong)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", name, err)
			continue
		}
		if (m.Template != nil) != (c.prompt != "") || m.Tokenizer == nil || len(m.JSON) != len(tokenizer) {
			t.Errorf("%s: %+v", name, m)
		} else if c.prompt != "" {
			if got, err := m.Template.Render(hello, nil); got != c.prompt || err != nil {
				t.Errorf("%s: %q %v, expected %q", name, got, err, c.prompt)
			}
		}
	}
	if _, err := Load("m", "", func(string, int64) ([]byte, error) { return nil, errors.New("no") }); err == nil {
		t.Error("no error")
	}
}
