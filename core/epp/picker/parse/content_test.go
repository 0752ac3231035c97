package parse

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/kv"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// A block's hash names all before its end and how it was cut: two are equal
// exactly when the beginnings are, and both are a first block or both sizes are
// equal. A description of a prompt gives the same hashes as its content.
func TestBlocksNameBeginnings(t *testing.T) {
	alphabet := rapid.SliceOfN(rapid.SampledFrom([]byte("ab")), 0, 700)
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "unit")
		type cut struct {
			content []byte
			size    int
			first   bool
		}
		seen := map[uint64]cut{}
		base := alphabet.Draw(t, "base")
		for range rapid.IntRange(1, 5).Draw(t, "prompts") {
			content := append(slices.Clone(base[:rapid.IntRange(0, len(base)).Draw(t, "keep")]),
				alphabet.Draw(t, "rest")...)
			size := unit * rapid.IntRange(1, 20).Draw(t, "units")
			limit := rapid.IntRange(0, 40).Draw(t, "limit")
			p := TextPrompt(content)
			p.Divide(unit, rapid.SampledFrom([]int{40, 1 << 40}).Draw(t, "divided"))
			got, _ := p.AppendBlocks(nil, 7, size, limit)
			if n := min(limit, (len(content)+4*size-1)/(4*size)); len(got) != n {
				t.Fatalf("%d blocks, expected %d", len(got), n)
			}
			whole := TextPrompt(content)
			whole.Divide(unit, 1<<40)
			d := DescribedPrompt(false, len(content), whole.unit, whole.heads)
			if described, _ := d.AppendBlocks(nil, 7, size, limit); !slices.Equal(got, described) {
				t.Fatalf("%x of the content, %x of the description", got, described)
			}
			for i, h := range got {
				x := cut{content[:min((i+1)*4*size, len(content))], size, i == 0}
				if old, ok := seen[h]; ok &&
					(!bytes.Equal(old.content, x.content) || old.first != x.first || !x.first && old.size != x.size) {
					t.Fatalf("%+v and %+v have one name", old, x)
				}
				for other, y := range seen {
					if other != h && bytes.Equal(x.content, y.content) && x.first == y.first &&
						(x.first || x.size == y.size) {
						t.Fatalf("%+v has two names", x)
					}
				}
				seen[h] = x
			}
		}
	})
}

// What a description does not say is asked for by name.
func TestDescriptionsSayWhatTheyLack(t *testing.T) {
	text, ids := DescribedPrompt(false, 1000, 64, nil), DescribedPrompt(true, 1000, 64, nil)
	body := Body{Described: true}
	for want, ask := range map[string]func(){
		"the prompt's text":      func() { text.Text() },
		"the prompt's token ids": func() { ids.Tokens() },
		"the body's bytes":       func() { body.Raw() },
	} {
		func() {
			defer func() {
				var u *Unknown
				if err, _ := recover().(error); !errors.As(err, &u) || u.What != want {
					t.Errorf("got %v, expected that %s is wanted", err, want)
				}
			}()
			ask()
		}()
	}
	if text.Tokens() != nil || ids.Text() != nil || text.EstimatedTokens() != 250 || ids.EstimatedTokens() != 250 {
		t.Error("what a description says is there")
	}
	func() { // blocks that are no whole number of units
		defer func() {
			if recover() == nil {
				t.Error("blocks of 10 tokens were made up")
			}
		}()
		text.AppendBlocks(nil, 1, 10, 100)
	}()
}

// Keys are those of one rule and model.
func TestKeysAreOfARule(t *testing.T) {
	p := TokenPrompt(make([]uint32, 64))
	h := kv.Hasher{BlockTokens: 16, Seed: "s"}
	p.SetKeys(h, "m", h.PromptKeys("m", "", p.Tokens()))
	if keys, ok := p.Keys(h, "m"); !ok || len(keys) != 4 {
		t.Errorf("%v %v", keys, ok)
	}
	if _, ok := p.Keys(h, "other"); ok {
		t.Error("another model has the same keys")
	}
	if _, ok := p.Keys(kv.Hasher{BlockTokens: 16}, "m"); ok {
		t.Error("another seed has the same keys")
	}
}

func BenchmarkDivide(b *testing.B) {
	p := TextPrompt(bytes.Repeat([]byte("0123456789abcdef"), 128<<10/16))
	b.SetBytes(int64(p.Length()))
	for b.Loop() {
		q := p
		q.Divide(UnitTokens, 1<<40)
	}
}
