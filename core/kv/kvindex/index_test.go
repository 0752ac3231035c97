package kvindex

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"pgregory.net/rapid"
)

// model is the index as one would write it without a thought for speed.
type model struct {
	hasher kv.Hasher
	alias  map[kv.EngineHash]kv.Key
	counts map[string]map[kv.EngineHash]map[string]int // pod, hash, medium
	held   map[string]map[kv.Key]map[string]bool       // pod, key, media
}

func (m *model) store(pod, name string, e *kv.Event) {
	parent, ok := m.alias[e.Parent]
	if e.Parent == 0 {
		parent, ok = m.hasher.Root(name), true
	}
	if !ok {
		return
	}
	for i, k := range m.hasher.AppendKeys(nil, parent, e.Tokens, nil) {
		h := e.Hashes[i]
		m.alias[h] = k
		if m.counts[pod] == nil {
			m.counts[pod], m.held[pod] = map[kv.EngineHash]map[string]int{}, map[kv.Key]map[string]bool{}
		}
		if m.counts[pod][h] == nil {
			m.counts[pod][h] = map[string]int{}
		}
		m.counts[pod][h][e.Medium]++
		if m.held[pod][k] == nil {
			m.held[pod][k] = map[string]bool{}
		}
		m.held[pod][k][e.Medium] = true
	}
}

func (m *model) remove(pod string, e *kv.Event) {
	for _, h := range e.Hashes {
		k := m.alias[h]
		switch m.counts[pod][h][e.Medium] {
		case 0:
		case 1:
			m.counts[pod][h][e.Medium] = 0
			delete(m.held[pod][k], e.Medium)
			if len(m.held[pod][k]) == 0 {
				delete(m.held[pod], k)
			}
		default:
			m.counts[pod][h][e.Medium]--
			continue
		}
		anywhere := false
		for _, held := range m.held {
			anywhere = anywhere || len(held[k]) > 0
		}
		if !anywhere {
			delete(m.alias, h)
		}
	}
}

// score returns the longest run of keys from the first, with the weight of each.
func (m *model) score(pod string, keys []kv.Key) (n int, weight float64) {
	for _, k := range keys {
		media := m.held[pod][k]
		if len(media) == 0 {
			break
		}
		if media[kv.MediumGPU] || media["disk"] {
			weight++
		} else {
			weight += 0.8
		}
		n++
	}
	return n, weight
}

// Whatever pods store, remove and clear, the index holds what a plain model
// holds and scores as it does.
func TestIndexAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := kv.Hasher{BlockTokens: 2}
		ix := New(Config{Hasher: h})
		m := &model{h, map[kv.EngineHash]kv.Key{}, map[string]map[kv.EngineHash]map[string]int{},
			map[string]map[kv.Key]map[string]bool{}}
		pods := []string{"a", "b", "c", "d", "e"}
		// Prompts of a small alphabet share prefixes; a block's engine hash is
		// made of its key, so that the same content has the same hash.
		prompt := func(label string) []uint32 { return rapid.SliceOfN(rapid.Uint32Range(0, 1), 0, 12).Draw(t, label) }
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			pod := rapid.SampledFrom(pods).Draw(t, "pod")
			medium := rapid.SampledFrom([]string{"gpu", "gpu", "cpu", "disk"}).Draw(t, "medium")
			tokens := prompt("tokens")
			keys := h.PromptKeys("m", "", tokens)
			hashes := make([]kv.EngineHash, len(keys))
			for i, k := range keys {
				hashes[i] = kv.EngineHash(k ^ 99)
			}
			from := rapid.IntRange(0, len(keys)).Draw(t, "from")
			e := &kv.Event{Kind: rapid.SampledFrom(
				[]kv.Kind{kv.Stored, kv.Stored, kv.Stored, kv.Removed, kv.Removed, kv.Cleared}).Draw(t, "kind"),
				Medium: medium, Group: kv.NoGroup, Hashes: hashes[from:]}
			switch e.Kind {
			case kv.Stored:
				e.Tokens = tokens[2*from : 2*len(keys)]
				if from > 0 {
					e.Parent = hashes[from-1]
				}
				m.store(pod, "m", e)
			case kv.Removed:
				m.remove(pod, e)
			case kv.Cleared:
				e.Hashes = nil
				delete(m.counts, pod)
				delete(m.held, pod)
			}
			give(ix, machine.Time(step), kv.Topic{Pod: pod, Model: "m"}, e)
			if rapid.IntRange(0, 9).Draw(t, "saved") == 0 {
				ix = again(t, ix)
			}
		}
		ask := h.PromptKeys("m", "", prompt("asked"))
		scores := map[string]PodScore{}
		for _, s := range ix.View().Scorer().Score(ask) {
			scores[s.Pod] = s
		}
		pairs := 0
		different := map[kv.Key]bool{}
		for _, pod := range pods {
			var want []kv.Key
			for k := range m.held[pod] {
				want = append(want, k)
				different[k] = true
			}
			slices.Sort(want)
			pairs += len(want)
			if got := ix.Keys(pod); !slices.Equal(got, want) {
				t.Fatalf("%s holds %x, want %x", pod, got, want)
			}
			n, weight := m.score(pod, ask)
			if s := scores[pod]; s.Blocks != n || s.Weight != weight {
				t.Fatalf("%s scores %+v, want %d blocks of weight %v", pod, s, n, weight)
			}
		}
		if s := ix.State(); s.Pairs != pairs || s.Blocks != len(different) {
			t.Fatalf("state %+v, want %d pairs of %d blocks", s, pairs, len(different))
		}
		checkLists(t, ix)
	})
}

// again is another index with the same state.
func again(t *rapid.T, ix *Index) *Index {
	text, err := json.Marshal(ix.Save())
	if err != nil {
		t.Fatal(err)
	}
	var s Saved
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	other := New(ix.cfg)
	if err := other.Load(&s); err != nil {
		t.Fatal(err)
	}
	sameState(t, ix, other)
	checkLists(t, other)
	return other
}

func sameState(t *rapid.T, a, b *Index) {
	x, _ := json.Marshal(a.Save())
	y, _ := json.Marshal(b.Save())
	if string(x) != string(y) {
		t.Fatalf("saved\n%s\nand of the other\n%s", x, y)
	}
}

// checkLists walks the index's lists and tables and compares them.
func checkLists(t *rapid.T, ix *Index) {
	n, before := 0, uint32(0)
	for id := ix.recs.oldest; id != 0; id = ix.recs.at(id).newer {
		rec := ix.recs.at(id)
		if rec.older != before {
			t.Fatalf("record %d: older is %d, want %d", id, rec.older, before)
		}
		if before != 0 && ix.recs.at(before).touched > rec.touched {
			t.Fatal("the age list is not in order")
		}
		slot, ok := ix.blocks.table.find(nameOf(uint64(rec.key)))
		if !ok || ix.blocks.placesOf(slot, rec.pod) != rec.places {
			t.Fatalf("record %d and its block disagree", id)
		}
		before = id
		n++
	}
	if n != ix.recs.live || before != ix.recs.newest {
		t.Fatalf("%d records by age, %d live", n, ix.recs.live)
	}
	blocks := 0
	for _, p := range ix.pods {
		blocks += p.blocks
		for id := p.first; id != 0; id = ix.recs.at(id).podNext {
			n--
		}
	}
	if n != 0 || blocks != ix.recs.live {
		t.Fatalf("the pods' lists miss %d records", n)
	}
}

// With bounds and ages of every sort the index stays consistent and within them, and an index that loads a saved state
// becomes equal to the saved one.
func TestIndexBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Hasher: kv.Hasher{BlockTokens: rapid.IntRange(1, 4).Draw(t, "index block")},
			TTL: machine.Time(rapid.IntRange(0, 30).Draw(t, "ttl")), MaxBlocks: rapid.IntRange(0, 10).Draw(t, "max"),
			CleanupInterval: machine.Time(rapid.IntRange(1, 10).Draw(t, "cleanup")),
			Orphans:         rapid.IntRange(1, 5).Draw(t, "orphans"),
			StaleAfter:      machine.Time(rapid.IntRange(0, 20).Draw(t, "stale")),
			ForgetAfter:     machine.Time(rapid.IntRange(0, 40).Draw(t, "forget")),
			MaxPods:         rapid.IntRange(1, 4).Draw(t, "pods")}
		ix, twin := New(cfg), New(cfg)
		now := machine.Time(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += machine.Time(rapid.IntRange(-2, 12).Draw(t, "dt"))
			pod := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "pod")
			e := anyEvent(t)
			if rapid.IntRange(0, 9).Draw(t, "saved") == 0 {
				twin = again(t, twin)
			}
			var m Message
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				m = DropPod{pod}
			case 1:
				m = Speculate{pod, kv.Hasher{BlockTokens: 1}.PromptKeys("m", "", e.Tokens), 7}
			case 2:
				m = Asked{pod, ix.Keys(pod), 2}
			case 3:
				e.ByName = true
				e.Name = "block"
				fallthrough
			default:
				m = &Events{kv.Topic{Pod: pod, Model: "m"}, []kv.Event{e}}
			}
			tell(ix, now, m)
			tell(twin, now, m)
			if at, ok := ix.Next(); ok && rapid.Bool().Draw(t, "wake") {
				a := advance(ix, max(at, ix.now))
				if b := advance(twin, ix.now); !slices.Equal(a, b) {
					t.Fatalf("at %v it says %v, the other %v", ix.now, a, b)
				}
				for _, x := range a {
					if x.At > ix.now {
						t.Fatalf("effect of %v at %v", x.At, ix.now)
					}
				}
			}
			if cfg.MaxBlocks > 0 && ix.State().Blocks > cfg.MaxBlocks || ix.State().Pods > cfg.MaxPods {
				t.Fatalf("beyond the bounds: %+v", ix.State())
			}
			checkLists(t, ix)
		}
		sameState(t, ix, twin)
		for _, pod := range ix.PodNames() {
			tell(ix, now, DropPod{pod})
		}
		if s := ix.State(); s.Pairs != 0 || s.Blocks != 0 || len(ix.names) != 0 {
			t.Fatalf("left behind: %+v, names %v", s, ix.names)
		}
		if ix.aliases.live > cfg.Orphans+len(ix.wide) && ix.aliases.live > 12 {
			t.Fatalf("%d engine hashes are remembered", ix.aliases.live)
		}
	})
}

// An index that is full of pods takes new ones all the same: those that were
// not heard of lately make room, with what they held.
func TestIndexMakesRoom(t *testing.T) {
	ix := New(Config{MaxPods: 100})
	var fx Effects
	store := func(pod string, h kv.EngineHash) {
		ix.Input(0, &Events{kv.Topic{Pod: pod, Model: "m"},
			[]kv.Event{{Kind: kv.Stored, Hashes: []kv.EngineHash{h}, Tokens: make([]uint32, kv.DefaultBlockTokens),
				Medium: kv.MediumGPU, Group: kv.NoGroup, BlockTokens: kv.DefaultBlockTokens}}}, &fx)
	}
	for i := range 10_000 {
		store(fmt.Sprint("made up ", i), kv.EngineHash(i+1))
		if i%50 == 0 {
			store("busy", 1)
		}
	}
	store("new", 2)
	for _, pod := range []string{"busy", "new", "made up 9999"} {
		if p, ok := ix.Pod(pod); !ok || p.Blocks == 0 {
			t.Errorf("%s: %v %+v", pod, ok, p)
		}
	}
	if _, ok := ix.Pod("made up 1"); ok || ix.State().Pods != 100 || ix.State().Pairs != 100 ||
		ix.Stats().DisplacedPods != 10_002-100 {
		t.Errorf("%+v %+v", ix.State(), ix.Stats())
	}
	forgotten := 0
	for _, e := range fx.List {
		if e.Kind == PodForgotten && e.Blocks == 1 {
			forgotten++
		}
	}
	if forgotten != 10_002-100 {
		t.Errorf("told of %d", forgotten)
	}
}

// Look-ups from other goroutines see whole blocks while events rush in: a pod
// holds block i only together with all before it, and never loses block 0.
func TestLookupsDuringBurst(t *testing.T) {
	ix := New(Config{Hasher: kv.Hasher{BlockTokens: 1}})
	tokens := make([]uint32, 200)
	hashes := make([]kv.EngineHash, len(tokens))
	for i := range tokens {
		tokens[i], hashes[i] = uint32(i), kv.EngineHash(i+1)
	}
	pods := benchPods(40)
	for _, p := range pods {
		give(ix, 0, p, &kv.Event{Kind: kv.Stored, Hashes: hashes[:1], Tokens: tokens[:1], Medium: kv.MediumGPU,
			Group: kv.NoGroup})
	}
	keys := kv.Hasher{BlockTokens: 1}.PromptKeys("m", "", tokens)
	var done sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		done.Add(1)
		go func() {
			defer done.Done()
			s := ix.View().Scorer()
			for {
				select {
				case <-stop:
					return
				default:
				}
				got := s.Score(keys)
				if len(got) != len(pods) {
					t.Errorf("%d pods hold the first block, want %d", len(got), len(pods))
					return
				}
			}
		}()
	}
	for round := range 15 {
		for i, p := range pods {
			n := 2 + (round*31+i*17)%(len(tokens)-2)
			give(ix, 0, p, &kv.Event{Kind: kv.Stored, Parent: hashes[0], Hashes: hashes[1:n], Tokens: tokens[1:n],
				Medium: kv.MediumGPU, Group: kv.NoGroup})
		}
		for i, p := range pods {
			n := 2 + (round*31+i*17)%(len(tokens)-2)
			last := slices.Clone(hashes[1:n])
			slices.Reverse(last)
			give(ix, 0, p, &kv.Event{Kind: kv.Removed, Hashes: last, Medium: kv.MediumGPU, Group: kv.NoGroup})
		}
	}
	close(stop)
	done.Wait()
	if s := ix.State(); s.Pairs != len(pods) {
		t.Fatalf("left: %+v", s)
	}
}

// The scripts under testdata/index: events as people write them, and what the
// index then says.
func TestIndexScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/index", func(t *testing.T, path string) {
		var ix *Index
		var hasher kv.Hasher
		var fx Effects
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			switch d.Cmd {
			case "new":
				cfg := Config{}
				cfg.Hasher.BlockTokens = intArg(t, d, "block", 4)
				cfg.MaxBlocks = intArg(t, d, "max", 0)
				cfg.Orphans = intArg(t, d, "orphans", 0)
				for name, v := range map[string]*machine.Time{"ttl": &cfg.TTL, "cleanup": &cfg.CleanupInterval,
					"stale": &cfg.StaleAfter, "forget": &cfg.ForgetAfter} {
					*v = machine.Time(intArg(t, d, name, 0)) * machine.Second
				}
				hasher = cfg.Hasher
				ix = New(cfg)
				return ""
			case "events":
				runEvents(t, ix, d, &fx)
			case "score":
				var tokens []uint32
				for i := intArg(t, d, "from", 1); i <= intArg(t, d, "to", 0); i++ {
					tokens = append(tokens, uint32(i))
				}
				keys := hasher.PromptKeys("m", "", tokens)
				for _, s := range ix.View().Scorer().Score(keys) {
					fmt.Fprintf(&out, "%s: %d of %d blocks, precise score %.4g\n", s.Pod, s.Blocks, len(keys),
						s.Precise(len(keys)))
				}
				if d.HasArg("sent") {
					var pod string
					d.ScanArgs(t, "sent", &pod)
					for _, s := range ix.View().Scorer().Score(keys) {
						if s.Pod == pod {
							ix.Input(ix.now, Asked{pod, keys, s.Blocks}, &fx)
						}
					}
				}
			case "state":
				s, c := ix.State(), ix.Stats()
				fmt.Fprintf(&out, "%d pairs of %d blocks on %d pods, hit rate %.2f\n", s.Pairs, s.Blocks, s.Pods,
					s.HitRate)
				for _, name := range ix.PodNames() {
					p, _ := ix.Pod(name)
					fmt.Fprintf(&out, "%s: %d blocks, %.0f%% full, hit rate %.2f, evicted %d, healthy %v\n", p.Pod,
						p.Blocks, 100*p.Utilization, p.HitRate, p.Evicted, p.Healthy)
					for _, h := range ix.Top(name, 2) {
						_, popular := ix.Holders(h.Key)
						fmt.Fprintf(&out, "  %s: on %s, hits %d, popularity %.2f\n", h.Name, strings.Join(h.Media, "+"),
							h.Hits, popular)
					}
				}
				for _, c := range []struct {
					n    uint64
					what string
				}{{c.UnknownParent, "unknown parent"}, {c.UnknownRemoved, "removed but unknown"},
					{c.TooShort, "too short"}, {c.Unresolved, "unresolved"},
					{c.Renamed, "renamed"}, {c.Displaced, "displaced"}, {c.Expired, "expired"},
					{c.OtherAttention, "other attention"}} {
					if c.n > 0 {
						fmt.Fprintf(&out, "%s: %d\n", c.what, c.n)
					}
				}
			case "at":
				now := machine.Time(intArg(t, d, "s", 0)) * machine.Second
				ix.Advance(now, &fx)
				for _, e := range fx.List {
					what := map[EffectKind]string{BlocksExpired: "expired", PodStale: "stale", PodHealthy: "healthy",
						PodForgotten: "forgotten"}[e.Kind]
					fmt.Fprintf(&out, "%v: %s %s %d blocks\n", e.At, what, e.Pod, e.Blocks)
				}
				fx.Reset()
				if at, ok := ix.Next(); ok {
					fmt.Fprintf(&out, "next at %v\n", at)
				}
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return out.String()
		})
	})
}

// anyEvent returns an event about few blocks, so that they meet.
func anyEvent(t *rapid.T) kv.Event {
	block := rapid.Map(rapid.Uint64Range(0, 11), func(v uint64) kv.EngineHash { return kv.EngineHash(v) })
	e := kv.Event{Kind: rapid.SampledFrom([]kv.Kind{kv.Stored, kv.Removed, kv.Cleared}).Draw(t, "kind"),
		Hashes: rapid.SliceOfN(block, 0, 40).Draw(t, "hashes"),
		Medium: rapid.SampledFrom([]string{"gpu", "cpu", "disk", ""}).Draw(t, "medium"),
		Group:  rapid.SampledFrom([]int{kv.NoGroup, kv.NoGroup, 0, 1, 300}).Draw(t, "group")}
	if e.Kind == kv.Stored {
		e.Parent = block.Draw(t, "parent")
		e.Tokens = rapid.SliceOfN(rapid.Uint32Range(0, 2), 0, 200).Draw(t, "tokens")
		e.BlockTokens = rapid.IntRange(0, 40).Draw(t, "size")
		e.LoRAName = rapid.SampledFrom([]string{"", "", "l"}).Draw(t, "lora")
		e.SpecKind = rapid.SampledFrom([]string{"", "full_attention", "mamba"}).Draw(t, "spec")
	}
	return e
}

func intArg(t *testing.T, d *datadriven.TestData, name string, otherwise int) int {
	d.MaybeScanArgs(t, name, &otherwise)
	return otherwise
}

// runEvents reads lines like "w1 stored 1,2 parent 7 tokens 1..8 on cpu",
// "w1 removed 2", "w1 cleared", "w1 named BLOCK_CREATED sha256:abc on cpu".
func runEvents(t *testing.T, ix *Index, d *datadriven.TestData, fx *Effects) {
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		e := kv.Event{Medium: kv.MediumGPU, Group: kv.NoGroup}
		switch f[1] {
		case "stored":
			e.Kind = kv.Stored
		case "removed":
			e.Kind = kv.Removed
		case "cleared":
			e.Kind = kv.Cleared
		case "heartbeat":
			e.Kind = kv.Heartbeat
			if len(f) > 2 {
				fmt.Sscan(f[2], &e.Capacity)
			}
		case "named":
			e.Kind = kv.DocumentKind(f[2])
			e.ByName, e.Name, e.Hashes = true, f[3], []kv.EngineHash{kv.Named(f[3])}
		default:
			t.Fatalf("unknown event %q", line)
		}
		if e.Kind <= kv.Removed && !e.ByName {
			for _, h := range strings.Split(f[2], ",") {
				var v uint64
				fmt.Sscan(h, &v)
				e.Hashes = append(e.Hashes, kv.EngineHash(v))
			}
		}
		for i := 2; i+1 < len(f); i++ {
			switch f[i] {
			case "parent":
				fmt.Sscan(f[i+1], (*uint64)(&e.Parent))
			case "tokens":
				var from, to uint32
				if _, err := fmt.Sscanf(f[i+1], "%d..%d", &from, &to); err != nil {
					t.Fatal(err)
				}
				for ; from <= to; from++ {
					e.Tokens = append(e.Tokens, from)
				}
			case "on":
				e.Medium = f[i+1]
			case "group":
				fmt.Sscan(f[i+1], &e.Group)
			case "kind":
				e.SpecKind = f[i+1]
			}
		}
		if e.Group != kv.NoGroup {
			e.BlockTokens = ix.cfg.Hasher.Tokens()
		}
		ix.Input(ix.now, &Events{From: kv.Topic{Pod: f[0], Model: "m"}, List: []kv.Event{e}}, fx)
	}
}

// Blocks that come without hashes are known by their tokens: they are found, in
// their order, and no engine's hash stands for them.
func TestStoredWithoutHashes(t *testing.T) {
	ix := New(Config{Hasher: kv.Hasher{BlockTokens: 2}})
	from := kv.Topic{Pod: "w", Model: "m"}
	tokens := []uint32{1, 2, 3, 4, 5}
	give(ix, 0, from, &kv.Event{Kind: kv.Stored, Tokens: tokens, Medium: kv.MediumGPU, Group: kv.NoGroup})
	keys := ix.cfg.Hasher.PromptKeys("m", "", tokens)
	if got := ix.View().Scorer().Score(keys); len(got) != 1 || got[0].Blocks != 2 {
		t.Errorf("%+v of %d", got, len(keys))
	}
	// The engine reports the hash of the first later, and then its removal.
	give(ix, 0, from, &kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{7}, Tokens: tokens[:2], Medium: kv.MediumGPU,
		Group: kv.NoGroup})
	give(ix, 0, from, &kv.Event{Kind: kv.Removed, Hashes: []kv.EngineHash{7}, Medium: kv.MediumGPU, Group: kv.NoGroup})
	if got := ix.Keys("w"); len(got) != 1 || got[0] != keys[1] {
		t.Errorf("it holds %v of %v", got, keys)
	}
	give(ix, 0, from, &kv.Event{Kind: kv.Cleared, Group: kv.NoGroup})
	if got := ix.Keys("w"); len(got) > 0 {
		t.Errorf("it holds %v", got)
	}
	if s := ix.Stats(); s.Admitted != 3 || s.Forwarded != 1 || s.Suppressed != 0 {
		t.Errorf("%+v", s)
	}
}
