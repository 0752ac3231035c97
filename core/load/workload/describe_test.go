package workload

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// fnv names a unit by its bytes.
type fnv struct{}

func (fnv) Name(before uint64, unit []byte) uint64 {
	for _, c := range unit {
		before = (before ^ uint64(c)) * 1099511628211
	}
	return before
}

// A described conversation is the same as a written one: its bytes, their length
// and beginning, its prompts and their names, whatever became of earlier turns.
func TestDescribedIsWritten(t *testing.T) {
	voc := tokens.NewVocabulary(tokens.Packed{})
	rapid.Check(t, func(t *rapid.T) {
		written := Config{Seed: rapid.Uint64().Draw(t, "seed"),
			Model:  rapid.SampledFrom([]string{"m", "llama-3", "a/b c"}).Draw(t, "model"),
			Stream: rapid.Bool().Draw(t, "stream"), MaxTokens: rapid.IntRange(0, 3).Draw(t, "max"),
			API: rapid.SampledFrom([]API{Chat, Completions, Generate}).Draw(t, "api"),
			Fields: []byte(rapid.SampledFrom([]string{"", `"temperature":0.5,"ignore_eos":true`, `"seed": 7`}).Draw(t,
				"fields"))}
		if rapid.Bool().Draw(t, "fixed") {
			written.Text = rapid.SampledFrom([]string{"hello", "  spaces around  ", "   "}).Draw(t, "text")
		} else {
			length := rapid.IntRange(0, 700)
			written.Length = func(*machine.Draw) int { return length.Draw(t, "length") }
		}
		if rapid.Bool().Draw(t, "prefixes") {
			written.Prefixes = []string{"", "  ", " a beginning ", strings.Repeat("long ", 100)}
		}
		turns := rapid.IntRange(1, 5).Draw(t, "turns")
		written.Turns = func(*machine.Draw) int64 { return int64(turns) }
		lengths := map[int]int{} // one for each request, in both
		if draw := written.Length; draw != nil {
			written.Length = func(d *machine.Draw) int {
				key := int(d.Uint64() % 1e9)
				if _, known := lengths[key]; !known {
					lengths[key] = draw(d)
				}
				return lengths[key]
			}
		}
		short := written
		short.Describe()
		if short.fields == nil {
			t.Fatal("is not described")
		}
		template := rapid.SampledFrom([]tokens.Template{{}, tokens.ChatML, tokens.Llama3, tokens.Harmony}).Draw(t,
			"template")
		rule := described.Rule{Namer: fnv{}, Seed: 3, Unit: rapid.IntRange(1, 300).Draw(t, "unit"), Template: template,
			Answer: rapid.Bool().Draw(t, "answer")}
		v, d := written.Conversation(0, 0), short.Conversation(0, 0)
		for {
			want, got := v.Request(), d.Request()
			if !got.IsDescribed() {
				if !bytes.Equal(got.Body, want.Body) || short.API != Completions || v.user != "" {
					t.Fatalf("expected a description of %s, got %s", want.Body, got.Body)
				}
				return
			}
			if !bytes.Equal(got.Described.Bytes(), want.Body) || got.Len() != len(want.Body) {
				t.Fatalf("expected %s, got %s of %d", want.Body, got.Described.Bytes(), got.Len())
			}
			if sent := got.Sent(); !slices.Equal(sent, want.Sent()) {
				t.Fatalf("expected %v to be recorded, got %v", want.Sent(), sent)
			}
			text := v.promptText(&template, rule.Answer)
			if s := string(got.Described.AppendPrompt(nil, &template, rule.Answer)); s != text ||
				got.Described.PromptLen(&template, rule.Answer) != len(text) {
				t.Fatalf("expected the prompt %q, got %q of %d", text, s,
					got.Described.PromptLen(&template, rule.Answer))
			}
			if rapid.Bool().Draw(t, "named") {
				var names []uint64
				last, left := rule.Seed, []byte(text)
				for ; len(left) >= rule.Unit; left = left[rule.Unit:] {
					last = fnv{}.Name(last, left[:rule.Unit])
					names = append(names, last)
				}
				shared, ok := got.Described.SharedNames(nil, &rule)
				if common := len(names) - len(shared); ok &&
					(len(v.history) > 0 || turns > 1 || common < 0 || !slices.Equal(shared, names[:len(shared)]) ||
						common > 0 && !ownIn(text[:(len(shared)+1)*rule.Unit], v.user, written.Prefixes)) {
					t.Fatalf("expected the beginning of the names %x before %q is said, got %x", names, v.user, shared)
				}
				if got, rest := got.Described.Names(nil, &rule); !slices.Equal(got, names) ||
					string(rest) != string(left) {
					t.Fatalf("expected the names %x and %q, got %x and %q", names, left, got, rest)
				}
			}
			if !v.More() {
				break
			}
			o := rapid.SampledFrom([]record.Outcome{record.Completed, record.Completed, record.TimedOut}).Draw(t,
				"outcome")
			said := described.Words(voc, rapid.Uint64().Draw(t, "base"), rapid.IntRange(0, 100).Draw(t, "words"))
			switch answer := said.String(); rapid.IntRange(0, 8).Draw(t, "how") {
			case 0:
				answer += "“"
				v.Next(answer, o)
				if d.Next(answer, o); o != record.Completed {
					break
				}
				if got, want := d.Request(), v.Request(); !bytes.Equal(got.Body, want.Body) {
					t.Fatalf("expected %s, got %s", want.Body, got.Body)
				}
				return
			case 1:
				v.Next(answer, o)
				d.Next(answer, o)
			default:
				v.Next(answer, o)
				d.NextDescribed(said, o)
			}
		}
	})
}

// ownIn says whether a prompt's beginning has some of what the user says in no other
// request.
func ownIn(beginning, said string, prefixes []string) bool {
	for _, p := range prefixes {
		if rest, has := strings.CutPrefix(said, p); has && len(p) > 2 {
			said = rest
		}
	}
	// A template that trims leaves out the spaces that a message may begin with; one that does not has them.
	return strings.Contains(beginning, said[:16]) || strings.Contains(beginning, strings.TrimLeft(said, " ")[:16])
}

// promptText is the prompt of the request under way.
func (v *Conversation) promptText(t *tokens.Template, answer bool) string {
	if v.c.API != Chat {
		return v.user
	}
	var list []tokens.Message
	for _, m := range append(slices.Clip(v.history), message{"user", v.user}) {
		list = append(list, tokens.Message(m))
	}
	return t.Render(list, "", answer)
}

// What does not stand for itself in JSON, or may be the prompt, is not described.
func TestUndescribable(t *testing.T) {
	for name, c := range map[string]Config{
		"unicode":   {Model: "m", Prompts: Prompts{Alphabet: Unicode}},
		"quotes":    {Model: "m", Prompts: Prompts{Text: `a "word"`}},
		"umlaut":    {Model: "m", Prompts: Prompts{Text: "ä"}},
		"model":     {Model: "a<b"},
		"adapter":   {Model: "m", Adapters: []Adapter{{Name: "ü"}}},
		"prefix":    {Model: "m", Prompts: Prompts{Prefixes: []string{"\n"}}},
		"tools":     {Model: "m", Fields: []byte(`"tools":[]`)},
		"twice":     {Model: "m", MaxTokens: 1, Fields: []byte(`"max_tokens":2`)},
		"messages":  {Model: "m", Fields: []byte(`"messages":[]`)},
		"other":     {Model: "m", Fields: []byte(`"Model":"n"`)},
		"recorded":  {Model: "m", Recorded: []Recorded{{}}},
		"not fully": {Model: `[{"role":"user","content":"@"}]`},
	} {
		if c.Describe(); c.fields != nil {
			t.Errorf("%s: expected no description", name)
		}
	}
}
