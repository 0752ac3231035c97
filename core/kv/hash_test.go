package kv

import (
	"hash/fnv"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"
)

// The hand-written hash equals FNV-64a over what a CBOR library writes.
func TestKeysAreFNVOfCanonicalCBOR(t *testing.T) {
	mode, err := cbor.CanonicalEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	sum := func(t *rapid.T, v any) uint64 {
		b, err := mode.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		h := fnv.New64a()
		h.Write(b)
		return h.Sum64()
	}
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.SampledFrom([]string{"", "42", "a longer seed"}).Draw(t, "seed")
		model := rapid.String().Draw(t, "model")
		s := fnv.New64a()
		s.Write([]byte(seed))
		hasher := Hasher{Seed: seed, BlockTokens: rapid.IntRange(1, 40).Draw(t, "block")}
		if got, want := uint64(hasher.Root(model)), sum(t, []any{s.Sum64(), nil, model}); got != want {
			t.Fatalf("root: got %x, want %x", got, want)
		}
		parent := rapid.Uint64().Draw(t, "parent")
		tokens := rapid.SliceOf(rapid.Uint32()).Draw(t, "tokens")
		extra := rapid.SliceOf(rapid.String()).Draw(t, "extra")
		var want any = extra
		if rapid.Bool().Draw(t, "plain") {
			extra, want = nil, nil
		}
		if got, want := uint64(BlockKey(Key(parent), tokens, extra)), sum(t, []any{parent, tokens, want}); got != want {
			t.Fatalf("block: got %x, want %x", got, want)
		}
	})
}

// A longer prompt keeps the keys of its prefix, and partial blocks have none.
func TestKeysChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Hasher{BlockTokens: rapid.IntRange(1, 20).Draw(t, "block")}
		tokens := rapid.SliceOf(rapid.Uint32()).Draw(t, "tokens")
		cut := rapid.IntRange(0, len(tokens)).Draw(t, "cut")
		all, some := h.PromptKeys("m", "", tokens), h.PromptKeys("m", "", tokens[:cut])
		if len(all) != len(tokens)/h.Tokens() {
			t.Fatalf("%d tokens in blocks of %d gave %d keys", len(tokens), h.Tokens(), len(all))
		}
		for i, k := range some {
			if all[i] != k {
				t.Fatalf("key %d changed when the prompt grew", i)
			}
		}
		if len(all) > 0 && h.PromptKeys("m", "salt", tokens)[len(all)-1] == all[len(all)-1] {
			t.Fatal("a salt changes nothing in the last block")
		}
	})
}

func BenchmarkHash16(b *testing.B) {
	tokens := make([]uint32, 16*64)
	for i := range tokens {
		tokens[i] = uint32(i * 131)
	}
	var h Hasher
	keys := make([]Key, 0, 64)
	b.ReportAllocs()
	for i := 0; i < b.N; i += 64 {
		keys = h.AppendKeys(keys[:0], 1, tokens, nil)
	}
}
