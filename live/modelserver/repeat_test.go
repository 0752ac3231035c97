package modelserver

import (
	"fmt"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
)

// A request with a seed, or with temperature 0, gets the same text and length for the same prompt, under any id and
// from any server of a run. Without either, the id draws them.
func TestSamePromptSameWords(t *testing.T) {
	t.Parallel()
	lengths, err := dist.ParseCount("10..40")
	if err != nil {
		t.Fatal(err)
	}
	o := fast()
	o.OutputTokens = &lengths
	one := startWith(t, Options{Servers: []ServerOptions{o, o}, Seed: 1})
	two := &bench{Server: one.fleet.Servers()[1], t: t, Client: one.Client}
	const tool = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",` +
		`"properties":{"city":{"type":"string"}},"required":["city"]}}}],`
	for _, c := range []struct{ path, body, field string }{
		{"/v1/completions", `{%s"max_tokens":90,"prompt":%q}`, "choices.#.text"},
		{"/v1/completions", `{%s"max_tokens":90,"n":2,"prompt":["a",%q]}`, "choices.#.text"},
		{"/v1/chat/completions", `{%s"messages":[{"role":"user","content":%q}]}`, "choices.0.message.content"},
		{"/v1/chat/completions", `{%s` + tool + `"tool_choice":"required","messages":[{"role":"user","content":%q}]}`,
			"choices.0.message.tool_calls.0.function.arguments"},
		{"/v1/chat/completions", `{%s"response_format":{"type":"json_object"},"messages":[{"role":"user","content":%q}]}`,
			"choices.0.message.content"},
		{"/v1/messages", `{%s"max_tokens":90,"messages":[{"role":"user","content":%q}]}`, "content.0.text"},
		{"/v1/responses", `{%s"input":%q}`, "output.0.content.0.text"},
	} {
		said := func(b *bench, how, prompt string) string {
			resp, body := b.post(c.path, fmt.Sprintf(c.body, how, prompt))
			text := gjson.Get(body, c.field).String()
			if resp.StatusCode != 200 || text == "" {
				t.Fatalf("%s: %d %s", c.path, resp.StatusCode, body)
			}
			return text
		}
		hows := []string{`"temperature":0,`}
		if c.path != "/v1/messages" && c.path != "/v1/responses" { // which have no seed
			hows = append(hows, `"seed":7,`)
		}
		for _, how := range hows {
			first := said(one, how, "Hello")
			if again := said(two, how, "Hello"); again != first {
				t.Errorf("%s %s: %q and then %q", c.path, how, first, again)
			}
			if other := said(one, how, "Hullo"); other == first {
				t.Errorf("%s %s: another prompt gets the same words: %q", c.path, how, other)
			}
		}
		if first := said(one, "", "Hello"); first == said(one, "", "Hello") {
			t.Errorf("%s: two requests have the same words: %q", c.path, first)
		}
	}
}
