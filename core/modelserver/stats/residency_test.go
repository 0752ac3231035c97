package stats

import (
	"slices"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

// A block that was filled, used twice more and evicted has a lifetime, a time
// without use at its end and the gap between its uses; what is still there has
// none, and what is not sampled never has.
func TestBlocksTimes(t *testing.T) {
	for _, share := range []float64{1, 0} {
		b := newBench(t, engine.Config{NumGPUBlocks: 4, BlockSize: 4, KVEvents: true, MaxModelLen: 16, MaxNumSeqs: 1,
			Timer: latency.Constant{TimeToFirstToken: 10 * machine.Millisecond,
				InterTokenLatency: machine.Millisecond}})
		b.SampleBlocks(share)
		for i, r := range []struct {
			at     machine.Time
			hashes []uint64
		}{{0, []uint64{1, 2}}, {machine.Second, []uint64{1, 3}}, {3 * machine.Second, []uint64{1, 2}},
			{10 * machine.Second, []uint64{5, 6, 7}}} {
			q := &Sequence{Blocks: r.hashes}
			b.submit(r.at, &engine.Submit{ID: engine.RequestID(i + 1), PromptTokens: 4*len(r.hashes) + 1, MaxTokens: 1,
				Hashes: r.hashes}, q)
			b.run()
		}
		if share == 0 {
			if n := b.blockLifetime.n + b.blockIdle.n + b.blockReuse.n; n > 0 {
				t.Errorf("%d times of blocks that are not sampled", n)
			}
			continue
		}
		// Four blocks are taken for the last one's: the free one, then the oldest:
		// 3, and with the last request's own order 2 and 1.
		if b.blockLifetime.n != 3 || b.blockIdle.n != 3 || b.blockReuse.n != 1 {
			t.Fatalf("%d lifetimes, %d times without use, %d gaps", b.blockLifetime.n, b.blockIdle.n, b.blockReuse.n)
		}
		if got, want := b.blockReuse.sum, 2.0; got != want {
			t.Errorf("the gap between the uses of block 1 is %v s, expected %v", got, want)
		}
		if got := b.blockLifetime.sum; got < 28.9 || got > 29 { // 9 s of block 3, 10 s of 1 and of 2
			t.Errorf("lifetimes of %v s together", got)
		}
		if got := b.blockIdle.sum; got < 22.9 || got > 23.1 { // 9 s, 7 s, 7 s
			t.Errorf("%v s without use together", got)
		}
		page := slices.Clone(b.blockLifetime.counts)
		if snap := b.Snapshot(); !slices.Equal(page, snap.blockLifetime.counts) {
			t.Error("a snapshot has other counts")
		}
	}
}
