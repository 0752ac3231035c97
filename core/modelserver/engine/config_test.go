package engine

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// What is wrong with a configuration is said all at once, with what to do.
func TestConfigErrors(t *testing.T) {
	_, err := New(Config{MaxNumSeqs: -1, MaxNumBatchedTokens: 1 << 30, MaxModelLen: 4096, NumGPUBlocks: 100,
		LoRAs: LoRAs{Adapters: []AdapterID{0}}, CPUBandwidth: 5})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"MaxNumSeqs is -1; it must be between 1 and 1048576",
		"MaxNumBatchedTokens is 1073741824",
		"the KV cache holds 1600 (100 blocks of 16): lower it, or give more blocks",
		"number adapters from 1",
		"Timer is missing; continuous batching needs one from core/modelserver/latency",
		"CPUBandwidth is 5 bytes per second",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said in:\n%v", want, err)
		}
	}
	if _, err := New(Config{Batching: BatchingIndependent}); err != nil {
		t.Errorf("the mock server of document 000 needs nothing: %v", err)
	}
	e, err := New(Config{Timer: bentTimer{}, NumGPUBlocks: 100})
	if err != nil || e.Config().MaxModelLen != 1600 {
		t.Errorf("a small cache bounds the model length by itself: %v, %v", e.Config().MaxModelLen, err)
	}
}

// Names are read back as they are written.
func TestNames(t *testing.T) {
	for i := range Batching(4) {
		if b, err := ParseBatching(i.String()); err != nil || b != i {
			t.Errorf("%v is read as %v, %v", i, b, err)
		}
	}
	for i := range Policy(2) {
		if p, err := ParsePolicy(i.String()); err != nil || p != i {
			t.Errorf("%v is read as %v, %v", i, p, err)
		}
	}
	for i := range KVLoadFailure(2) {
		if p, err := ParseKVLoadFailure(i.String()); err != nil || p != i {
			t.Errorf("%v is read as %v, %v", i, p, err)
		}
	}
	if _, err := ParsePolicy("lifo"); err == nil ||
		!strings.Contains(err.Error(), `"lifo" is unknown: use one of [fcfs priority]`) {
		t.Errorf("got %v", err)
	}
}

// Two prompts share hashes exactly as far as they share full blocks from the
// beginning.
func TestBlockHashesAreChained(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "block size")
		tokens := rapid.SliceOfN(rapid.Uint32Range(0, 2), 0, 40)
		a, b := tokens.Draw(t, "a"), tokens.Draw(t, "b")
		x, y := BlockHashes(nil, 0, a, size), BlockHashes(nil, 0, b, size)
		if len(x) != len(a)/size {
			t.Fatalf("%d tokens in blocks of %d have %d hashes", len(a), size, len(x))
		}
		for i := range min(len(x), len(y)) {
			if end := (i + 1) * size; (x[i] == y[i]) != slices.Equal(a[:end], b[:end]) {
				t.Fatalf("block %d of %v and %v: %x and %x", i, a, b, x[i], y[i])
			}
		}
		if salted := BlockHashes(nil, 1, a, size); len(x) > 0 && salted[0] == x[0] {
			t.Fatal("the salt does not matter")
		}
		if cut := len(x) / 2; !slices.Equal(x,
			BlockHashes(BlockHashes(nil, 0, a[:cut*size], size), last(x[:cut]), a[cut*size:], size)) {
			t.Fatal("a chain cut in two is another chain")
		}
	})
	if got := BlockHashes(nil, 0, []uint32{1}, 0); got != nil {
		t.Errorf("blocks of no size: %v", got)
	}
}

func last(h []uint64) uint64 {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1]
}

// Without times of their own, requests draw them from the configured range; a
// request's draw depends on nobody else.
func TestIndependentTimesAreDrawnByRequest(t *testing.T) {
	first := func(ids ...RequestID) map[RequestID]machine.Time {
		e, err := New(Config{Batching: BatchingIndependent, Seed: 7, Prefill: Span{100, 200}, TokenTime: Span{5, 5}})
		if err != nil {
			t.Fatal(err)
		}
		var fx Effects
		for _, id := range ids {
			e.Input(0, &Submit{ID: id, PromptTokens: 1, MaxTokens: 2}, &fx)
		}
		for at, ok := e.Next(); ok; at, ok = e.Next() {
			e.Advance(at, &fx)
		}
		times := map[RequestID]machine.Time{}
		for _, f := range fx.List {
			if f.Kind == FirstToken {
				times[f.Request] = f.At
			}
		}
		return times
	}
	alone, together := first(3), first(1, 2, 3, 4, 5)
	if alone[3] != together[3] {
		t.Errorf("request 3 takes %v alone and %v among others", alone[3], together[3])
	}
	different := map[machine.Time]bool{}
	for id, at := range together {
		different[at] = true
		if at < 100 || at > 200 {
			t.Errorf("request %d takes %v, outside the range", id, at)
		}
	}
	if len(different) < 2 {
		t.Errorf("all requests take the same: %v", together)
	}
}

// Requests that leave early leave nothing behind that grows.
func TestAbortsLeaveNoTrace(t *testing.T) {
	e, err := New(Config{Timer: bentTimer{base: FixedNanos(100), knot: NoKnot}, NumGPUBlocks: 1 << 16,
		MaxModelLen: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var fx Effects
	e.Input(0, &Submit{ID: 1, PromptTokens: 1, MaxTokens: 1 << 19, HoldAfterFirst: true}, &fx)
	now := machine.Time(0)
	for i := range 50_000 {
		id := RequestID(i + 2)
		e.Input(now, &Submit{ID: id, PromptTokens: 10, MaxTokens: 1 << 19}, &fx)
		if i%2 == 0 {
			now += 250
			e.Advance(now, &fx)
		}
		if i > 1000 {
			e.Input(now, Abort{id - 1000}, &fx)
		}
		fx.Reset()
	}
	if n := e.batch.finish.Len(); n > 5000 {
		t.Errorf("%d entries wait for requests to finish, %d are in flight", n, e.InFlight())
	}
	if n := cap(e.queue.slots); n > 10_000 {
		t.Errorf("the queue has room for %d, %d are in flight", n, e.InFlight())
	}
	if n := len(e.reqs); n > 2000 {
		t.Errorf("%d slots for %d requests", n, e.InFlight())
	}
}
