package kvevents

import (
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// BenchmarkWire measures one stored block from a publisher over a real socket into an index: batching, msgpack, ZMTP,
// TCP, decoding, hashing and indexing.
func BenchmarkWire(b *testing.B) {
	const blocks, tokens = 64, 16
	x, err := NewIndexer(IndexerOptions{
		Subscriber: SubscriberOptions{Bind: "tcp://127.0.0.1:0", Feed: kvfeed.Config{Gaps: kvfeed.GapsIgnore}}})
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	p, err := NewPublisher(PublisherOptions{Topic: topic, Connect: []string{x.Endpoint()}, BatchEvents: 16,
		QueueMessages: 1 << 20, ReplayMessages: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for p.Stats().Subscribers == 0 {
		pause.For(b.Context(), time.Millisecond)
	}
	b.ReportAllocs()
	b.ResetTimer()
	n := uint64(0)
	for i := 0; i < b.N; i += blocks {
		e := kv.Event{Kind: kv.Stored, Medium: kv.MediumGPU, Group: kv.NoGroup, BlockTokens: tokens,
			Hashes: make([]kv.EngineHash, blocks), Tokens: make([]uint32, blocks*tokens)}
		for k := range e.Hashes {
			e.Hashes[k] = kv.EngineHash(1<<40 + i + k)
		}
		for k := range e.Tokens {
			e.Tokens[k] = uint32(i + k)
		}
		p.Publish(e)
		n++
	}
	p.Flush()
	for {
		var got uint64
		x.Do(func(_ machine.Time, ix *kvindex.Index) { got = ix.Stats().Events[kv.Stored] })
		if got >= n {
			break
		}
		pause.For(b.Context(), time.Millisecond)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
	if s := p.Stats(); s.Dropped > 0 {
		b.Fatalf("%d messages dropped", s.Dropped)
	}
}
