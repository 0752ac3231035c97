package chattemplate

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// conversation is one of testdata/conversations.json.
type conversation struct {
	Messages []struct {
		Role       string `json:"role"`
		Content    string `json:"content"`
		Name       string `json:"name"`
		ToolCallID string `json:"tool_call_id"`
		Calls      []struct {
			ID       string `json:"id"`
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools     []json.RawMessage `json:"tools"`
	Answer    *bool             `json:"add_generation_prompt"`
	Variables json.RawMessage   `json:"variables"`
}

func (c *conversation) conversation() *Conversation {
	out := &Conversation{Tools: c.Tools, NoGenerationPrompt: c.Answer != nil && !*c.Answer, Variables: c.Variables}
	for _, m := range c.Messages {
		turn := Message{Role: m.Role, Content: m.Content, Name: m.Name, ToolCallID: m.ToolCallID}
		for _, call := range m.Calls {
			turn.Calls = append(turn.Calls, Call{call.ID, call.Function.Name, call.Function.Arguments})
		}
		out.Messages = append(out.Messages, turn)
	}
	return out
}

func conversations(t testing.TB) map[string]conversation {
	t.Helper()
	text, err := os.ReadFile("testdata/conversations.json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]conversation{}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

var special = map[string]string{"bos_token": "<s>", "eos_token": "</s>"}

func model(t testing.TB, path string) *Template {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	template, err := Parse(path, string(text), special)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// Templates built as those of these models are write byte for byte what Jinja2
// makes of them with transformers' settings (testdata/oracle.py), and refuse what
// it refuses.
func TestModels(t *testing.T) {
	paths, err := filepath.Glob("testdata/models/*.jinja")
	if err != nil || len(paths) < 10 {
		t.Fatal(err, paths)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			template := model(t, path)
			expected, err := os.ReadFile(strings.TrimSuffix(path, ".jinja") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			all := conversations(t)
			for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(string(expected), "=== "), "\n"),
				"\n=== ") {
				name, want, _ := strings.Cut(part, "\n")
				c := all[name]
				got, err := template.Render(c.conversation(), nil)
				if raised, ok := errors.AsType[*Raised](err); ok {
					got = "refused: " + raised.Message
				} else if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s: -jinja2 +here\n%s", name, d)
				}
			}
		})
	}
}

// The tags with and filter do what they do in Jinja2.
func TestWithAndFilter(t *testing.T) {
	c := &Conversation{Messages: []Message{{Role: "user", Content: "Hello <you>"}}}
	for text, want := range map[string]string{
		"{% with a = 1, b = 'x' ~ 'y' %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}":                           "1xyFalse",
		"{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}":                               "211",
		"{% with a = 1 if messages else 2, b = (3 if not messages else 4) %}{{ a }}{{ b }}{% endwith %}":         "14",
		"{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a is defined }}":                                        "1False",
		"{% set n = namespace(x=1) %}{% with y = 2 %}{% set n.x = y %}{% endwith %}{{ n.x }}":                    "2",
		"{% for m in messages %}{% with text = m.content %}{{ m.role }}: {{ text }}{% endwith %}{% endfor %}":    "user: Hello <you>",
		"{% with x = [1, 2] %}{% for i in x %}{% with x = i * 2 %}{{ x }}{% endwith %}{% endfor %}{% endwith %}": "24",
		"{% filter upper | replace('YOU', 'me') %}{{ messages[0].content }}!{% endfilter %}.":                    "HELLO <me>!.",
		"{% filter trim %}\n  {% if true %}a{% endif %}  {% endfilter %}b":                                       "ab",
	} {
		template, err := Parse("m.jinja", text, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := template.Render(c, nil); err != nil || got != want {
			t.Errorf("%s: %q, %v, expected %q", text, got, err, want)
		}
	}
}

// Parse refuses an unknown construct, with its line, before any prompt is rendered.
func TestRefusedTemplates(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a\n{%- include 'x' %}",
			`m.jinja: line 2: the tag "include" is not supported, expected one of for, if, set, with, macro`},
		{"{% for m in messages %}\n\n{% autoescape true %}{% endautoescape %}{% endfor %}",
			`line 3: the tag "autoescape" is not supported`},
		{"{# {% include 'x' %} #}{% raw %}{% include 'x' %}{% endraw %}", ""},
		{"a\n{% with x %}{% endwith %}", "expected with NAME = VALUE"},
		{"a\n{% with x = 1 y = 2 %}{% endwith %}", "line 2: expected a comma"},
		{"a\n{% with x = 1 if 2 %}{% endwith %}", "expected VALUE if CONDITION else VALUE"},
		{"a\n{% filter upper lower %}{% endfilter %}", "line 2: expected | and a filter"},
		{"a\n{% filter %}{% endfilter %}", "filter name must be an identifier"},
		{"a\n{% if x %}", "m.jinja: "},
		{"a\nb {{ messages[ }}", "m.jinja: line 2"},
		{strings.Repeat("x", MaxTemplateBytes+1), "the limit is 1048576"},
	} {
		_, err := Parse("m.jinja", c.text, nil)
		if c.want == "" && err != nil || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 300) {
			t.Errorf("%.60q: %v, expected %q", c.text, err, c.want)
		}
	}
}

// Nobody's conversation takes more than its share of work, memory or stack.
func TestWorkIsBounded(t *testing.T) {
	long := &Conversation{Messages: slices.Repeat([]Message{{Role: "user", Content: "x"}}, 20_000)}
	for name, c := range map[string]struct {
		text, want string
	}{
		"loops in loops": {"{% for a in messages %}{% for b in messages %}{% endfor %}{% endfor %}",
			"steps"},
		"a long range": {"{% for a in range(1000000000) %}x{% endfor %}", "range of more than"},
		"ranges in ranges": {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
			"steps"},
		"a prompt without end": {"{% for a in messages %}{{ '" + strings.Repeat("x", 100_000) +
			"' }}{% endfor %}", "writes more than"},
		"a macro that calls itself":  {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ""},
		"an attribute of what is no": {"{{ messages[0].a.b.c }}", ""},
		"a string times a number":    {"{{ 'x' * messages }}", ""},
	} {
		template, err := Parse("m.jinja", c.text, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		_, err = template.Render(long, nil)
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
	}
	deep := strings.Repeat("[", 100_000)
	template := model(t, "testdata/models/qwen2.5-instruct.jinja")
	if _, err := template.Render(
		&Conversation{Messages: []Message{{Role: "user"}}, Tools: []json.RawMessage{[]byte(deep)}}, nil); err == nil ||
		!strings.Contains(err.Error(), "nested more than") {
		t.Error(err)
	}
}

// leaves is a client that leaves once it was asked so many times whether it has left.
type leaves struct{ after, asked int }

func (c *leaves) HasLeft() bool {
	c.asked++
	return c.asked > c.after
}

// However a template spends its time, rendering stops soon after the client has left.
func TestRenderStopsWhenTheClientLeaves(t *testing.T) {
	c := &Conversation{Messages: []Message{{Role: "user", Content: strings.Repeat("a b\n", 200)}}}
	for name, text := range map[string]string{
		"rounds":  "{% for a in range(9999) %}{% for b in range(99) %}{% endfor %}{% endfor %}",
		"outputs": "{% for a in range(99999) %}{{ a }}{% endfor %}",
		"macros":  "{% macro m() %}{% endmacro %}{% for a in range(99999) %}{% set x = m() %}{% endfor %}",
		"values":  "{% for a in range(9999) %}{% set x = messages[0].content * 100 %}{% endfor %}",
		"filters": "{% for a in range(9999) %}{% set x = messages[0].content | replace('a', 'bbbb') %}{% endfor %}",
		"methods": "{% for a in range(9999) %}{% set x = messages[0].content.upper() %}{% endfor %}",
	} {
		template, err := Parse("m.jinja", text, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		client := &leaves{after: 1}
		if _, err := template.Render(c, client); !errors.Is(err, errLeft) {
			t.Errorf("%s: found %v, expected that rendering ends because the client left", name, err)
		}
		if client.asked != 2 {
			t.Errorf("%s: the client was asked %d times, expected 2", name, client.asked)
		}
	}
}

// A template is one server's, and its requests come at once.
func TestManyAtOnce(t *testing.T) {
	template := model(t, "testdata/models/gpt-oss.jinja")
	all := conversations(t)
	want := map[string]string{}
	for name, c := range all {
		want[name], _ = template.Render(c.conversation(), nil)
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for name, c := range all {
				if got, _ := template.Render(c.conversation(), nil); got != want[name] {
					t.Errorf("%s: another prompt", name)
				}
			}
		})
	}
	wait.Wait()
}

// Whatever a template is, it is refused or rendered within its bounds.
func FuzzTemplate(f *testing.F) {
	paths, _ := filepath.Glob("testdata/models/*.jinja")
	for _, p := range paths {
		text, _ := os.ReadFile(p)
		f.Add(string(text))
	}
	c := &Conversation{Messages: []Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}}}
	f.Fuzz(func(t *testing.T, text string) {
		if template, err := Parse("x", text, special); err == nil {
			_, _ = template.Render(c, nil)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	template := model(b, "testdata/models/llama-3.1-instruct.jinja")
	c := &Conversation{Messages: slices.Repeat(
		[]Message{{Role: "user", Content: "x"}, {Role: "assistant", Content: "y"}}, 5)}
	for b.Loop() {
		if _, err := template.Render(c, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// What the library would take for something else means what it means in Python.
func TestRewritten(t *testing.T) {
	c := &Conversation{Messages: []Message{{Role: "user", Content: "x"}}}
	for text, want := range map[string]string{
		`{{ messages[-1].role }}{{ messages[ -1 ]['content'] }}{{ [1, 2][-2] }}{{ 'ab'[-2] }}`:                  "userx1a",
		`{{ messages[-2] is defined }}|{{ [-1][0] }}|{{ [1, -1] }}|{{ 3 - [1][0] }}`:                            "False|-1|[1, -1]|2",
		`{{ ('a' if false else 'b') }}{{ ('a' if true) }}{{ ('a' if false) }}`:                                  "ba",
		`{{ 'x' + ('' if true else 'b') + ("if" if 1 == 2 else "else") }}`:                                      "xelse",
		`{{ ('a' if false else 'b' if false else 'c') }}{{ (('a' if true else 'b') if true else 'c') }}`:        "ca",
		`{{ [1 if true else 2, 3 if false else 4] }}{{ {'k': 'v' if true else 'w'}['k'] }}`:                     "[1, 4]v",
		`{{ dict(a='v' if false else 'w').a }}{{ range(1 if true else 3)|length }}`:                             "w1",
		"{# ('a' if #}{{ '(a if b else c)' }}{{ \"it's (x[-1]\" }}":                                             "(a if b else c)it's (x[-1]",
		`{{ messages[0].missing[0] if messages[0].missing else 'n' }}{{ (messages[0].a.b.c if false else 1) }}`: "n1",
		`{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}{{ {'b': 1}.keys() | list }}`:         "role=user;content=x;['b']",
		`{% if (1 if messages else 0) == 1 %}y{% endif %}{`:                                                     "y{",
	} {
		template, err := Parse("x", text, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := template.Render(c, nil); err != nil || got != want {
			t.Errorf("%s: %q %v, expected %q", text, got, err, want)
		}
	}
}
