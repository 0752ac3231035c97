package kv_test

import (
	"slices"
	"testing"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"pgregory.net/rapid"
)

// steady is a step time that depends on nothing.
type steady struct{}

func (steady) StepTime(*engine.Step) engine.Fixed { return engine.ToFixed(machine.Millisecond) }

func (steady) DecodeLine(int, int64) (engine.Line, bool) {
	return engine.Line{Base: engine.ToFixed(machine.Millisecond), Until: engine.NoKnot}, true
}

// fleet is engines whose events travel as vLLM writes them into one index.
type fleet struct {
	t       *rapid.T
	engines []*engine.Engine
	prompts []map[engine.RequestID][]uint32 // tokens of a request, output and all
	feeds   []*kvfeed.Feed
	seq     []uint64
	ix      *kvindex.Index
	hasher  kv.Hasher
	block   int
	form    kvcodec.Form
	found   map[engine.RequestID]int32 // prompt tokens that the engine had cached
}

func (f *fleet) topic(i int) kv.Topic {
	return kv.Topic{Pod: string(rune('a' + i)), Model: "m"}
}

// take publishes what an engine's effects say of its blocks.
func (f *fleet) take(i int, now machine.Time, fx *engine.Effects) {
	b := kv.Batch{DataParallelRank: 0}
	for k := range fx.List {
		x := &fx.List[k]
		e := kv.Event{Medium: x.Tier.String(), Group: kv.NoGroup}
		for _, h := range fx.BlockHashes(x) {
			e.Hashes = append(e.Hashes, kv.EngineHash(h))
		}
		switch x.Kind {
		case engine.PrefillStarted:
			f.found[x.Request] = x.Count
			continue
		case engine.BlockStored:
			e.Kind, e.BlockTokens = kv.Stored, f.block
			if x.Tier == engine.TierCPU { // like vLLM's offloading connector
				break
			}
			e.Parent = kv.EngineHash(x.Parent)
			tokens := f.prompts[i][x.Request]
			e.Tokens = tokens[int(x.First)*f.block : int(x.First+x.Count)*f.block]
		case engine.BlockRemoved:
			e.Kind = kv.Removed
		case engine.AllBlocksCleared:
			e.Kind = kv.Cleared
		default:
			continue
		}
		b.Events = append(b.Events, e)
	}
	fx.Reset()
	if len(b.Events) == 0 {
		return
	}
	var out kvfeed.Effects
	f.feeds[i].Input(now, kvfeed.Message{Kind: kvfeed.Live, Seq: f.seq[i],
		Payload: kvcodec.AppendBatch(nil, b, f.form)}, &out)
	f.seq[i]++
	for _, d := range out.List {
		if d.Kind != kvfeed.Deliver {
			f.t.Fatalf("feed says %+v", d)
		}
		var dec kvcodec.Decoder
		batch, err := dec.Decode(d.Payload)
		if err != nil {
			f.t.Fatal(err)
		}
		f.ix.Input(now, &kvindex.Events{From: f.topic(i), List: batch.Events}, &kvindex.Effects{})
	}
}

// idle lets all engines finish.
func (f *fleet) idle(now machine.Time) machine.Time {
	var fx engine.Effects
	for i, e := range f.engines {
		for e.InFlight() > 0 {
			at, ok := e.Next()
			if !ok {
				f.t.Fatalf("engine %d has %d requests and waits for nothing", i, e.InFlight())
			}
			now = max(now, at)
			e.Advance(now, &fx)
			f.take(i, now, &fx)
		}
	}
	return now
}

// After any run the index is the union of the engines' blocks: the hit that an engine then finds in its prefix cache
// for any prompt equals the index's prediction, token by token, under evictions, offloading, preemptions, aborts and
// resets. The engines' hashes are their own; the index uses the tokens.
func TestIndexIsTheUnionOfTheEngines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const indexBlock = 2
		block := indexBlock * rapid.IntRange(1, 2).Draw(t, "engine blocks per index block")
		f := &fleet{t: t, block: block, hasher: kv.Hasher{BlockTokens: indexBlock},
			form:  rapid.SampledFrom([]kvcodec.Form{kvcodec.ArrayForm, kvcodec.MapForm}).Draw(t, "form"),
			found: map[engine.RequestID]int32{}}
		f.ix = kvindex.New(kvindex.Config{Hasher: f.hasher, Orphans: 1 << 20})
		for i := range rapid.IntRange(1, 3).Draw(t, "engines") {
			e, err := engine.New(engine.Config{Index: uint64(i), Timer: steady{}, BlockSize: block,
				NumGPUBlocks: rapid.IntRange(12, 40).Draw(t, "blocks"),
				NumCPUBlocks: rapid.SampledFrom([]int{0, 5, 30}).Draw(t, "cpu blocks"),
				MaxNumSeqs:   8, MaxNumBatchedTokens: 64, MaxModelLen: 24, KVEvents: true})
			if err != nil {
				t.Fatal(err)
			}
			f.engines = append(f.engines, e)
			f.prompts = append(f.prompts, map[engine.RequestID][]uint32{})
			f.feeds = append(f.feeds, kvfeed.New(kvfeed.Config{}))
			f.seq = append(f.seq, 0)
		}
		var fx engine.Effects
		now := machine.Time(0)
		id := engine.RequestID(0)
		submit := func(i, prompt, output int) engine.RequestID {
			id++
			// Few different tokens: prefixes are shared, and so are outputs.
			tokens := rapid.SliceOfN(rapid.Uint32Range(1, 2), prompt+output, prompt+output).Draw(t, "tokens")
			f.prompts[i][id] = tokens
			f.engines[i].Input(now, &engine.Submit{ID: id, PromptTokens: prompt, MaxTokens: output, StopAfter: output,
				Hashes: engine.BlockHashes(nil, 0, tokens, block)}, &fx)
			f.take(i, now, &fx)
			return id
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, len(f.engines)-1).Draw(t, "engine")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				now = f.idle(now)
			case 1:
				f.engines[i].Input(now, engine.Control{Op: engine.OpResetPrefixCache}, &fx)
			case 2:
				f.engines[i].Input(now, engine.Abort{ID: id}, &fx)
			case 3:
				now += machine.Time(rapid.IntRange(1, 5).Draw(t, "ms")) * machine.Millisecond
				f.engines[i].Advance(now, &fx)
			default:
				submit(i, rapid.IntRange(1, 16).Draw(t, "prompt"), rapid.IntRange(1, 8).Draw(t, "output"))
			}
			f.take(i, now, &fx)
		}
		now = f.idle(now)
		scorer := f.ix.View().Scorer()
		for range 6 {
			i := rapid.IntRange(0, len(f.engines)-1).Draw(t, "asked engine")
			n := rapid.IntRange(1, 16).Draw(t, "asked prompt")
			before := id + 1
			// The index is asked before the engine gets to know the prompt.
			id++
			tokens := rapid.SliceOfN(rapid.Uint32Range(1, 2), n+1, n+1).Draw(t, "asked tokens")
			want := int32(0)
			for _, s := range scorer.Score(f.hasher.PromptKeys("m", "", tokens[:n])) {
				if s.Pod == f.topic(i).Pod {
					// The last token is always computed, and engines share whole blocks.
					want = int32(min(s.Blocks*indexBlock, n-1) / block * block)
				}
			}
			f.prompts[i][id] = tokens
			f.engines[i].Input(now, &engine.Submit{ID: id, PromptTokens: n, MaxTokens: 1,
				Hashes: engine.BlockHashes(nil, 0, tokens, block)}, &fx)
			f.take(i, now, &fx)
			now = f.idle(now)
			if got := f.found[before]; got != want {
				t.Fatalf("engine %d finds %d of %d prompt tokens %v, the index foretold %d", i, got, n, tokens[:n],
					want)
			}
		}
		for i, e := range f.engines {
			e.Input(now, engine.Control{Op: engine.OpResetPrefixCache}, &fx)
			f.take(i, now, &fx)
			if left := f.ix.Keys(f.topic(i).Pod); len(left) > 0 {
				t.Fatalf("engine %d is empty, the index still has %d of its blocks", i, len(left))
			}
		}
		if s := f.ix.Stats(); s.UnknownParent+s.UnknownRemoved+s.Renamed+s.Unresolved > 0 {
			t.Fatalf("the engines' events do not fit: %+v", s)
		}
		if !slices.IsSorted(f.ix.PodNames()) {
			t.Fatal("pod names are not sorted")
		}
	})
}
