package engine

import (
	"fmt"
	"math"
	"runtime"
	"syscall"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/gate"
)

// An 8B model on one large accelerator, roughly: 7 ms per step, 40 ns per token
// of context, 35 us per prompt token.
var benchTimer = bentTimer{
	base: FixedNanos(7e6), perPrefill: FixedNanos(35e3), perDecode: FixedNanos(2e3), slope: FixedNanos(40.3),
	knot: NoKnot,
}

// BenchmarkEngine is the engine alone under the load that the issue names: 64
// engines, Poisson arrivals of 5 requests per second at each, 512 prompt tokens,
// prefix caching and block accounting on. One operation is one request. Prompts
// share a 128-token beginning with one sixteenth of the others.
//
//	go test -run - -bench Engine -benchtime 1000000x ./core/modelserver/engine
func BenchmarkEngine(b *testing.B) {
	usual := 0.0 // of 128 tokens
	for _, c := range []struct {
		out      int
		explicit bool
		single   bool
		caching  bool
		events   bool
	}{
		{128, false, false, true, false},
		{1024, false, false, true, false},
		{128, true, false, true, false},
		{128, false, false, false, false},
		{128, false, false, true, true},
		{1024, false, false, true, true},
		{128, false, true, true, false},
	} {
		name := fmt.Sprintf("out=%d", c.out)
		if c.explicit {
			name += "/explicit-hashes"
		}
		if c.single {
			name += "/single-steps"
		}
		if !c.caching {
			name += "/no-prefix-caching"
		}
		if c.events {
			name += "/kv-events"
		}
		b.Run(name, func(b *testing.B) {
			took := benchmark(b, 64, 5, c.out, c.explicit, c.single, c.caching, c.events)
			switch {
			case b.N < 100_000: // mostly what engines take that begin
			case name == "out=128":
				usual = took
				gate.AtMost(b, took, "cpu-ns/req", 3000)
			case name == "out=1024" && usual > 0:
				gate.AtMost(b, took/usual, "times-out=128", 2)
			}
		})
	}
}

// BenchmarkOverload is four engines that get several times what they can do: the
// queue grows to thousands, and the KV cache is always full.
func BenchmarkOverload(b *testing.B) {
	benchmark(b, 4, 200, 128, false, false, true, false)
}

// BenchmarkStreams measures the load of a live server on its engine: 1,000 requests that report every token, with a
// wake-up at every step. One operation is one token.
func BenchmarkStreams(b *testing.B) {
	const streams = 1000
	e, err := New(Config{Timer: benchTimer, MaxNumSeqs: streams, NumGPUBlocks: 1 << 20, MaxModelLen: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	var fx Effects
	for i := range streams {
		e.Input(0, &Submit{ID: RequestID(i + 1), PromptTokens: 8, Interest: EveryToken}, &fx)
	}
	b.ReportAllocs()
	tokens := 0
	for tokens < b.N {
		at, _ := e.Next()
		e.Advance(at, &fx)
		for i := range fx.List {
			tokens += int(fx.List[i].Count)
		}
		fx.Reset()
	}
}

// benchmark is one of them, and what a request takes of the processor in nanoseconds.
func benchmark(b *testing.B, pods int, rate float64, out int, explicit, single, caching, events bool) float64 {
	var families [16][]uint64
	for f := range families {
		for i := range 8 {
			families[f] = append(families[f], mix(uint64(f*100+i)))
		}
	}
	engines := make([]*Engine, pods)
	arrivals := make([]machine.Time, pods)
	draw := machine.NewDraw(1, "bench", "arrivals", 0)
	gap := func() machine.Time {
		return machine.Time(-math.Log(1-draw.Float64()) / rate * float64(machine.Second))
	}
	var tree tournament
	tree.init(pods)
	for i := range engines {
		e, err := New(Config{Timer: benchTimer, Index: uint64(i), SingleSteps: single, DisablePrefixCaching: !caching,
			KVEvents: events})
		if err != nil {
			b.Fatal(err)
		}
		engines[i] = e
		arrivals[i] = gap()
		tree.set(i, arrivals[i])
	}
	var fx Effects
	finished, sent, effects, wakes := 0, 0, 0, 0
	var m Submit
	b.ReportAllocs()
	b.ResetTimer()
	started := cpuTime()
	for {
		i, at := tree.first()
		if at == machine.Never {
			break
		}
		e := engines[i]
		if at == arrivals[i] {
			sent++
			m = Submit{ID: RequestID(sent), PromptTokens: 512, MaxTokens: out, Hashes: families[draw.Intn(16)]}
			if explicit {
				h := make([]uint64, 32)
				for j := copy(h, m.Hashes); j < 32; j++ {
					h[j] = draw.Uint64()
				}
				m.Hashes = h
			}
			e.Input(at, &m, &fx)
			arrivals[i] += gap()
			if sent+pods > b.N { // one more for each of the others at most
				arrivals[i] = machine.Never
			}
		} else {
			e.Advance(at, &fx)
		}
		wakes++
		effects += len(fx.List)
		for j := range fx.List {
			if fx.List[j].Kind == Finished {
				finished++
			}
		}
		fx.Reset()
		next, _ := e.Next()
		tree.set(i, min(next, arrivals[i]))
	}
	b.StopTimer()
	took := float64(cpuTime()-started) / float64(sent)
	b.ReportMetric(took, "cpu-ns/req")
	if finished != sent {
		b.Fatalf("%d of %d requests finished", finished, sent)
	}
	var hits, steps uint64
	for _, e := range engines {
		hits += e.Stats().PrefixCacheHits
		steps += e.Stats().Steps
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	preemptions := uint64(0)
	for _, e := range engines {
		preemptions += e.Stats().Preemptions
	}
	b.ReportMetric(float64(preemptions)/float64(sent), "preemptions/req")
	b.ReportMetric(float64(wakes)/float64(sent), "calls/req")
	b.ReportMetric(float64(effects)/float64(sent), "effects/req")
	b.ReportMetric(float64(steps)/float64(sent), "steps/req")
	b.ReportMetric(float64(hits)/float64(sent), "hit-tokens/req")
	b.ReportMetric(float64(mem.HeapInuse)/float64(pods)/1024, "KiB/engine")
	return took
}

// tournament is a tree of who is next: one slot per engine.
type tournament struct {
	at   []machine.Time
	win  []int32
	size int
}

func (t *tournament) init(n int) {
	t.size = 1
	for t.size < n {
		t.size *= 2
	}
	t.at = make([]machine.Time, t.size)
	t.win = make([]int32, 2*t.size)
	for i := range t.at {
		t.at[i] = machine.Never
		t.win[t.size+i] = int32(i)
	}
	for i := t.size - 1; i > 0; i-- {
		t.win[i] = t.win[2*i]
	}
}

func (t *tournament) first() (int, machine.Time) { return int(t.win[1]), t.at[t.win[1]] }

func (t *tournament) set(i int, at machine.Time) {
	t.at[i] = at
	for k := (t.size + i) / 2; k > 0; k /= 2 {
		l, r := t.win[2*k], t.win[2*k+1]
		if t.at[r] < t.at[l] {
			l = r
		}
		t.win[k] = l
	}
}

// cpuTime is the process's, in ns: wall-clock time says little on a machine that
// others use too.
func cpuTime() int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return r.Utime.Nano() + r.Stime.Nano()
}
