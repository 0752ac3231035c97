package parse_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Describe and Parse return the same body and the same hashes of a prompt's beginnings, for any unit and any length.
func TestDescribe(t *testing.T) {
	voc := tokens.NewVocabulary(tokens.Packed{})
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(1, 3000)
		c := workload.Config{Seed: rapid.Uint64().Draw(t, "seed"), Model: "m", Stream: rapid.Bool().Draw(t, "stream"),
			MaxTokens: rapid.IntRange(0, 9).Draw(t, "max"),
			API: rapid.SampledFrom([]workload.API{workload.Chat, workload.Completions, workload.Generate}).Draw(t,
				"api"), Fields: []byte(rapid.SampledFrom(
				[]string{"", `"cache_salt":"x"`, `"cache_salt":7`, `"n":2`}).Draw(t, "fields")),
			Prompts: workload.Prompts{Length: func(*machine.Draw) int { return length.Draw(t, "length") }},
			Turns:   func(*machine.Draw) int64 { return 4 }}
		if rapid.Bool().Draw(t, "prefixes") {
			c.Prefixes = workload.Prefixes(1, 2, workload.ASCII, func(*machine.Draw) int64 { return 600 })
		}
		c.Describe()
		v := c.Conversation(0, 0)
		ps := rapid.SampledFrom(
			[]parse.Parser{parse.OpenAI{}, parse.VLLMHTTP{}, parse.VLLMGRPC{}, parse.Passthrough{}}).Draw(t, "parser")
		for {
			r := v.Request()
			d := r.Described
			got, err := parse.Describe(ps, r.Path, &d, nil)
			want, bad := ps.Parse(r.Path, d.Bytes())
			if (err == nil) != (bad == nil) || err != nil && err.Error() != bad.Error() {
				t.Fatalf("expected %v, got %v", bad, err)
			}
			if err != nil {
				return
			}
			if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(parse.Body{}, parse.Prompt{})); d != "" {
				t.Fatal(d)
			}
			if len(got.Prompts) != len(want.Prompts) {
				t.Fatalf("expected %d prompts, got %d", len(want.Prompts), len(got.Prompts))
			}
			for i := range got.Prompts {
				g, w := &got.Prompts[i], &want.Prompts[i]
				if g.Length() != w.Length() {
					t.Fatalf("expected %d bytes, got %d", w.Length(), g.Length())
				}
				if rapid.Bool().Draw(t, "divided") {
					unit, limit := rapid.SampledFrom([]int{1, 16, 64}).Draw(t, "unit"),
						rapid.SampledFrom([]int{1, 63, 64, 100000}).Draw(t, "limit")
					g.Divide(unit, limit)
					w.Divide(unit, limit)
					_, heads := g.Heads()
					if _, want := w.Heads(); !slices.Equal(heads, want) {
						t.Fatalf("expected the heads %x, got %x", want, heads)
					}
				}
				block, limit := rapid.SampledFrom([]int{16, 64, 96, 128}).Draw(t, "block"),
					rapid.IntRange(0, 60).Draw(t, "blocks")
				got, _ := g.AppendBlocks(nil, 5, block, limit)
				if want, _ := w.AppendBlocks(nil, 5, block, limit); !slices.Equal(got, want) {
					t.Fatalf("expected the blocks %x, got %x", want, got)
				}
				if rapid.Bool().Draw(t, "spelt") && string(g.Bytes()) != string(w.Bytes()) {
					t.Fatalf("expected %q, got %q", w.Bytes(), g.Bytes())
				}
			}
			if string(got.Raw()) != string(want.Raw()) {
				t.Fatalf("expected %s, got %s", want.Raw(), got.Raw())
			}
			if !v.More() {
				return
			}
			v.NextDescribed(described.Words(voc, 1, rapid.IntRange(0, 300).Draw(t, "words")), record.Completed)
		}
	})
}
