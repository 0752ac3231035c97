package grpcapi

import (
	"testing"
	"unsafe"

	"github.com/windtunnel/windtunnel/core/kv"
)

// Events of long prompts are large: those that are kept for subscribers have a
// limit in bytes, and a subscriber gets all from the oldest of them on.
func TestKVFeedIsBounded(t *testing.T) {
	t.Parallel()
	var f Feed
	for range FeedLength {
		f.Add(kv.Event{Kind: kv.Stored, Tokens: make([]uint32, 8192), Hashes: make([]kv.EngineHash, 512)})
	}
	taken := 0
	for n := uint64(1); n <= f.next; n++ {
		if e, ok := f.kept.Peek(n); ok {
			taken += int(unsafe.Sizeof(e)) + 4*cap(e.Tokens) + 8*cap(e.Hashes)
		}
	}
	if taken > f.kept.Bytes() || taken > feedBytes || taken < feedBytes/2 {
		t.Errorf("%d bytes are kept, %d are counted", taken, f.kept.Bytes())
	}
	if _, _, gone := f.from(1); !gone {
		t.Error("the first is there still")
	}
	n, got := f.next-uint64(f.kept.Len())+1, 0
	for wait := (<-chan struct{})(nil); wait == nil; {
		var events []kv.Event
		var gone bool
		if events, wait, gone = f.from(n); gone || len(events) > feedAtOnce {
			t.Fatalf("%d events, gone %v", len(events), gone)
		}
		n += uint64(len(events))
		got += len(events)
	}
	if got != f.kept.Len() {
		t.Errorf("%d of %d", got, f.kept.Len())
	}
}
