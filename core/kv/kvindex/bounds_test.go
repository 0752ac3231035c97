package kvindex

import (
	"slices"
	"testing"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/machine"
)

func storedOn(medium string, h kv.EngineHash, tokens ...uint32) *kv.Event {
	return &kv.Event{Kind: kv.Stored, Medium: medium, Group: kv.NoGroup, Hashes: []kv.EngineHash{h}, Tokens: tokens,
		BlockTokens: len(tokens)}
}

func removed(h kv.EngineHash) *kv.Event {
	return &kv.Event{Kind: kv.Removed, Medium: kv.MediumGPU, Group: kv.NoGroup, Hashes: []kv.EngineHash{h}}
}

// Blocks that come and go leave nothing behind: neither slots of tables nor
// engine hashes, beyond the few that are remembered.
func TestChurnIsBounded(t *testing.T) {
	ix := New(Config{Hasher: kv.Hasher{BlockTokens: 1}, Orphans: 10})
	for i := range uint32(200_000) {
		give(ix, 0, kv.Topic{Pod: "p", Model: "m"}, storedOn(kv.MediumGPU, kv.EngineHash(i+1), i))
		if i >= 100 {
			give(ix, 0, kv.Topic{Pod: "p", Model: "m"}, removed(kv.EngineHash(i-99)))
		}
	}
	if s := ix.State(); s.Blocks != 100 {
		t.Fatalf("%+v", s)
	}
	if n := ix.aliases.live; n > 110 {
		t.Fatalf("%d engine hashes are remembered for 100 blocks", n)
	}
	for name, table := range map[string]*table{"blocks": &ix.blocks.table, "aliases": &ix.aliases} {
		slots := 0
		for i := range table.shards {
			if s := table.shards[i].slots.Load(); s != nil {
				slots += len(*s)
			}
		}
		if slots > 40*tableShards {
			t.Errorf("%s has %d slots for 100 blocks", name, slots)
		}
	}
	if n := int(ix.recs.made); n > 200 {
		t.Errorf("%d records were made for 100 blocks", n)
	}
}

// What a look-up holds in its hands does not change under it.
func TestHoldersNeverChange(t *testing.T) {
	ix := New(Config{Hasher: kv.Hasher{BlockTokens: 1}})
	pods := benchPods(6)
	for _, p := range pods[:5] {
		give(ix, 0, p, storedOn(kv.MediumGPU, 1, 7))
	}
	key := kv.Hasher{BlockTokens: 1}.PromptKeys("m", "", []uint32{7})[0]
	var buf [1]holder
	seen := ix.blocks.holders(key, &buf)
	kept := slices.Clone(seen)
	give(ix, 0, pods[2], storedOn(kv.MediumCPU, 1, 7))
	give(ix, 0, pods[5], storedOn(kv.MediumGPU, 1, 7))
	give(ix, 0, pods[0], removed(1))
	give(ix, 0, pods[1], removed(1))
	give(ix, 0, pods[1], storedOn(kv.MediumGPU, 1, 7))
	if !slices.Equal(seen, kept) || len(seen) != 5 {
		t.Fatalf("%v became %v", kept, seen)
	}
}

// A scorer keeps nothing of the last prompt.
func TestScorerForgets(t *testing.T) {
	ix := New(Config{Hasher: kv.Hasher{BlockTokens: 1}})
	give(ix, 0, kv.Topic{Pod: "p", Model: "m"}, storedOn(kv.MediumCPU, 1, 7))
	s := ix.View().Scorer()
	keys := kv.Hasher{BlockTokens: 1}.PromptKeys("m", "", []uint32{7})
	for range 3 {
		if got := s.Score(keys); len(got) != 1 || got[0] != (PodScore{"p", 1, 0.8}) {
			t.Fatalf("got %+v", got)
		}
	}
	if got := s.Score(nil); len(got) != 0 {
		t.Fatalf("got %+v for no prompt", got)
	}
}

// What is expected of a pod counts until its time is over, to the nanosecond;
// asked for again it counts longer; and what came true stays.
func TestSpeculation(t *testing.T) {
	h := kv.Hasher{BlockTokens: 1}
	ix := New(Config{Hasher: h})
	keys := h.PromptKeys("m", "", []uint32{7, 8})
	count := func() int {
		n := 0
		for _, s := range ix.View().Scorer().Score(keys) {
			n = s.Blocks
		}
		return n
	}
	tell(ix, 0, Speculate{"p", keys, 10})
	tell(ix, 5, Speculate{"p", keys[:1], 10})
	give(ix, 6, kv.Topic{Pod: "p", Model: "m"}, storedOn(kv.MediumGPU, 1, 7))
	for _, c := range []struct {
		at   machine.Time
		want int
	}{{9, 2}, {10, 1}, {14, 1}, {15, 1}} {
		advance(ix, c.at)
		if got := count(); got != c.want {
			t.Fatalf("at %d: %d blocks, want %d", c.at, got, c.want)
		}
	}
	if at, ok := ix.Next(); ok {
		t.Fatalf("the index still waits for %v", at)
	}
	give(ix, 16, kv.Topic{Pod: "p", Model: "m"}, removed(1))
	if count() != 0 || ix.Stats().UnknownRemoved != 0 {
		t.Fatalf("%d blocks after the removal, %+v", count(), ix.Stats())
	}
}

// The eviction rate is over the last minute.
func TestEvictionRate(t *testing.T) {
	ix := New(Config{Hasher: kv.Hasher{BlockTokens: 1}})
	at := func(s int) machine.Time { return machine.Time(s) * machine.Second }
	for s := range 90 {
		give(ix, at(s), kv.Topic{Pod: "p", Model: "m"}, storedOn(kv.MediumGPU, kv.EngineHash(s+1), uint32(s)))
		give(ix, at(s), kv.Topic{Pod: "p", Model: "m"}, removed(kv.EngineHash(s+1)))
	}
	for _, c := range []struct {
		s    int
		want float64
	}{{89, 1}, {119, 0.5}, {148, 1.0 / 60}, {149, 0}, {100_000, 0}} {
		advance(ix, at(c.s))
		if p, _ := ix.Pod("p"); p.EvictionRate != c.want || p.Evicted != 90 {
			t.Errorf("at %d s: rate %v of %d, want %v", c.s, p.EvictionRate, p.Evicted, c.want)
		}
	}
}

// An eviction that names no medium is one from everywhere.
func TestEvictionFromEverywhere(t *testing.T) {
	ix := New(Config{})
	for _, text := range []string{`{"event_type":"BLOCK_CREATED","pod_id":"p","block_hash":"sha256:a"}`,
		`{"event_type":"BLOCK_CREATED","pod_id":"p","block_hash":"sha256:a","medium":"CPU"}`,
		`{"event_type":"BLOCK_EVICTED","pod_id":"p","block_hash":"sha256:a"}`} {
		b, err := kvcodec.DecodeJSON([]byte(text), kvcodec.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		give(ix, 0, kv.Topic{}, &b.Events[0])
	}
	if s := ix.State(); s.Pairs != 0 || s.Pods != 1 {
		t.Fatalf("%+v", s)
	}
}
