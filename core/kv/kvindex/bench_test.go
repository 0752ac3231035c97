package kvindex

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/gate"
)

// benchEvent stores a prompt of blocksPer blocks, with tokens of its own.
func benchEvent(prompt, blocksPer int) *kv.Event { return benchFill(new(kv.Event), prompt, blocksPer) }

// benchFill returns the same in an event's old memory, as a Decoder does it.
func benchFill(e *kv.Event, prompt, blocksPer int) *kv.Event {
	*e = kv.Event{Kind: kv.Stored, Medium: kv.MediumGPU, Group: kv.NoGroup, BlockTokens: 16, Hashes: e.Hashes[:0],
		Tokens: e.Tokens[:0]}
	for b := range blocksPer {
		e.Hashes = append(e.Hashes, kv.EngineHash(machine.Time(prompt)<<20|machine.Time(b)|1<<60))
		for i := range 16 {
			e.Tokens = append(e.Tokens, uint32(prompt*7919+b*131+i))
		}
	}
	return e
}

// BenchmarkIndexStored is one block stored, keys computed, in an index that
// grows to a million blocks.
func BenchmarkIndexStored(b *testing.B) {
	const per = 64
	events := make([]Events, 1<<20/per)
	pods := benchPods(64)
	for i := range events {
		events[i] = Events{From: pods[i%len(pods)], List: []kv.Event{*benchEvent(i, per)}}
	}
	var fx Effects
	b.ReportAllocs()
	b.ResetTimer()
	began := cpuTime()
	ix := New(Config{})
	for i := 0; i < b.N; i += per {
		n := i / per
		if n%len(events) == 0 {
			ix = New(Config{})
		}
		ix.Input(machine.Time(i), &events[n%len(events)], &fx)
	}
	perSecond(b, "events/cpu-s", began)
}

// BenchmarkIndexChurn is steady state: at a million blocks on 64 pods, one
// block removed and another stored, counted as two events; decoding and
// hashing are part of it.
func BenchmarkIndexChurn(b *testing.B) {
	const per, prompts = 64, 1 << 20 / 64
	pods := benchPods(64)
	ix := New(Config{})
	wire := make([][]byte, 0, prompts)
	for i := range prompts {
		e := benchEvent(i, per)
		give(ix, 0, pods[i%len(pods)], e)
		gone := kv.Event{Kind: kv.Removed, Hashes: e.Hashes, Medium: kv.MediumGPU, Group: kv.NoGroup}
		wire = append(wire, kvcodec.AppendBatch(nil, kv.Batch{Events: []kv.Event{gone, *e}}, kvcodec.ArrayForm))
	}
	var d kvcodec.Decoder
	var m Events
	var fx Effects
	b.ReportAllocs()
	b.ResetTimer()
	began := cpuTime()
	for i := 0; i < b.N; i += 2 * per {
		n := i / (2 * per) % prompts
		batch, err := d.Decode(wire[n])
		if err != nil {
			b.Fatal(err)
		}
		m = Events{From: pods[n%len(pods)], List: batch.Events}
		ix.Input(machine.Time(i), &m, &fx)
	}
	perSecond(b, "events/cpu-s", began)
}

// BenchmarkIndexLookup is one block looked up in an index of a million, in an
// order that the caches do not know.
func BenchmarkIndexLookup(b *testing.B) {
	ix, keys := benchFilled(1 << 20)
	v := ix.View()
	b.ReportAllocs()
	b.ResetTimer()
	began := cpuTime()
	found := 0
	for i := range b.N {
		found += v.Pods(keys[(i*7919)%len(keys)])
	}
	if found != b.N {
		b.Fatalf("found %d of %d", found, b.N)
	}
	perSecond(b, "lookups/cpu-s", began)
}

// BenchmarkScore100x100 scores a prompt of 100 blocks that 100 pods hold.
func BenchmarkScore100x100(b *testing.B) {
	ix := New(Config{})
	e := benchEvent(1, 100)
	for _, p := range benchPods(100) {
		give(ix, 0, p, e)
	}
	keys := kv.Hasher{}.PromptKeys("m", "", e.Tokens)
	s := ix.View().Scorer()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if got := s.Score(keys); len(got) != 100 || got[99].Blocks != 100 {
			b.Fatal("wrong score")
		}
	}
}

// BenchmarkScoreDuringBurst is the same while another goroutine applies
// events without a pause; the slowest look-ups are reported beside the mean.
func BenchmarkScoreDuringBurst(b *testing.B) {
	ix := New(Config{})
	e := benchEvent(1, 100)
	for _, p := range benchPods(100) {
		give(ix, 0, p, e)
	}
	keys := kv.Hasher{}.PromptKeys("m", "", e.Tokens)
	var stop atomic.Bool
	var events atomic.Int64
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		other := benchPods(3)[2]
		for i := 2; !stop.Load(); i++ {
			burst := benchEvent(i, 256)
			give(ix, 0, other, burst)
			give(ix, 0, other, &kv.Event{Kind: kv.Removed, Hashes: burst.Hashes, Medium: kv.MediumGPU,
				Group: kv.NoGroup})
			events.Add(512)
		}
	}()
	s := ix.View().Scorer()
	var slowest time.Duration
	began := time.Now()
	b.ResetTimer()
	for range b.N {
		at := time.Now()
		s.Score(keys)
		slowest = max(slowest, time.Since(at))
	}
	b.StopTimer()
	stop.Store(true)
	done.Wait()
	b.ReportMetric(float64(slowest.Microseconds()), "slowest-µs")
	b.ReportMetric(float64(events.Load())/time.Since(began).Seconds(), "events/s")
}

// BenchmarkIndexMemory grows to ten million (block, pod) pairs and says how
// much memory they take, how fast they came, and what events and look-ups cost
// then: steady is one block removed and stored again, counted as two. A quarter
// of what growing costs is the system's, which hands out the memory page by
// page. It takes over a gigabyte, so it runs only when asked for.
func BenchmarkIndexMemory(b *testing.B) {
	if os.Getenv("WINDTUNNEL_BENCH_LARGE") == "" {
		b.Skip("set WINDTUNNEL_BENCH_LARGE=1: it takes 1.5 GB")
	}
	const pairs, per = 10_000_000, 100
	for range b.N {
		before := heap()
		ix := New(Config{})
		pods := benchPods(100)
		var spent time.Duration
		var e kv.Event
		for i := range pairs / per {
			benchFill(&e, i, per)
			at := cpuTime()
			give(ix, machine.Time(i), pods[i%len(pods)], &e)
			spent += cpuTime() - at
		}
		if got := ix.State(); got.Pairs != pairs {
			b.Fatalf("%d pairs", got.Pairs)
		}
		gate.AtMost(b, float64(heap()-before)/(1<<20), "MiB", 1500)
		b.ReportMetric(pairs/spent.Seconds(), "growing-events/cpu-s")
		const again = 20_000 // events of per blocks
		spent = 0
		for k := range again {
			i := k * 7919 % (pairs / per)
			benchFill(&e, i, per)
			gone := kv.Event{Kind: kv.Removed, Hashes: e.Hashes, Medium: kv.MediumGPU, Group: kv.NoGroup}
			at := cpuTime()
			give(ix, machine.Time(pairs+k), pods[i%len(pods)], &gone)
			give(ix, machine.Time(pairs+k), pods[i%len(pods)], &e)
			spent += cpuTime() - at
		}
		gate.AtLeast(b, 2*again*per/spent.Seconds(), "steady-events/cpu-s", 2e6)
		var keys []kv.Key
		for i := 0; i < pairs/per; i += 50 {
			keys = append(keys, kv.Hasher{}.PromptKeys("m", "", benchEvent(i, per).Tokens)...)
		}
		v, n := ix.View(), 0
		at := cpuTime()
		for i := range 2_000_000 {
			n += v.Pods(keys[(i*7919)%len(keys)])
		}
		gate.AtLeast(b, float64(n)/(cpuTime()-at).Seconds(), "lookups/cpu-s", 5e6)
		runtime.KeepAlive(ix)
	}
}

func benchFilled(blocks int) (*Index, []kv.Key) {
	const per = 64
	ix := New(Config{})
	pods := benchPods(64)
	var keys []kv.Key
	for i := range blocks / per {
		e := benchEvent(i, per)
		give(ix, 0, pods[i%len(pods)], e)
		keys = kv.Hasher{}.AppendKeys(keys, kv.Hasher{}.Root("m"), e.Tokens, nil)
	}
	return ix, keys
}

func benchPods(n int) []kv.Topic {
	pods := make([]kv.Topic, n)
	for i := range pods {
		pods[i] = kv.Topic{Pod: fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256), Model: "m"}
	}
	return pods
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// perSecond reports how many there are per second of processor time.
func perSecond(b *testing.B, unit string, since time.Duration) {
	b.ReportMetric(float64(b.N)/(cpuTime()-since).Seconds(), unit)
}
