package kvcodec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/windtunnel/windtunnel/core/kv"
	"pgregory.net/rapid"
)

// A reader of document 003's events, in which a block exists or does not, has exactly the blocks with at least one copy
// in the engine.
func TestCopiesAreTheEnginesBusiness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type block struct {
			name   string
			medium string
		}
		var copies Copies
		had, read := map[block]int{}, map[block]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			e := kv.Event{Kind: rapid.SampledFrom(
				[]kv.Kind{kv.Stored, kv.Stored, kv.Removed, kv.Removed, kv.Cleared}).Draw(t, "kind"),
				Medium: rapid.SampledFrom([]string{kv.MediumGPU, "cpu"}).Draw(t, "medium"), Group: kv.NoGroup,
				BlockTokens: 2}
			for _, n := range rapid.SliceOfNDistinct(rapid.Uint64Range(1, 4), 1, 4, rapid.ID).Draw(t, "blocks") {
				h := kv.EngineHash(n)
				b := block{h.Name(), e.Medium}
				switch {
				case e.Kind == kv.Removed && had[b] == 0:
					continue // an engine removes what it has
				case e.Kind == kv.Removed:
					had[b]--
				case e.Kind == kv.Stored:
					had[b]++
					e.Tokens = append(e.Tokens, uint32(n), 0)
				}
				e.Hashes = append(e.Hashes, h)
			}
			if e.Kind == kv.Cleared {
				clear(had)
				e.Hashes = nil
			} else if len(e.Hashes) == 0 {
				continue
			}
			last, any := copies.Last(e)
			if !any {
				continue
			}
			text, err := AppendJSON(nil, kv.Batch{Events: []kv.Event{last}}, "pod")
			if err != nil {
				t.Fatal(err)
			}
			b, err := DecodeJSON(text, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range b.Events {
				switch e.Kind {
				case kv.Cleared:
					clear(read)
				case kv.Removed:
					delete(read, block{e.Name, e.Medium})
				default:
					read[block{e.Name, e.Medium}] = true
				}
			}
		}
		want := map[block]bool{}
		for b, n := range had {
			if n > 0 {
				want[b] = true
			}
		}
		if d := cmp.Diff(want, read); d != "" {
			t.Fatal(d)
		}
	})
}
