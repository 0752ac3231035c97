package grpcapi

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// Feed keeps a server's latest KV events for gRPC's SubscribeKvEvents. Each event is a batch of its own, numbered from
// 1.
type Feed struct {
	mu     sync.Mutex
	kept   *bounded.Store[uint64, kv.Event] // by number; nil before the first
	next   uint64                           // the number of the latest event
	waiter chan struct{}
}

// FeedLength is how many events a subscriber may lag behind, as long as they fit into feedBytes. An event for a long
// prompt names all its tokens.
const (
	FeedLength = 8192
	feedBytes  = 32 << 20
	// feedAtOnce is how many events are sent at once.
	feedAtOnce = 128
)

// entryBytes is the overhead of an entry.
const entryBytes = 256

var eventBytes = int(reflect.TypeFor[kv.Event]().Size())

// Add appends an event.
func (f *Feed) Add(e kv.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept == nil {
		f.kept = bounded.New[uint64, kv.Event](bounded.Limits{Entries: FeedLength, Bytes: feedBytes}, nil)
	}
	f.next++
	f.kept.Put(f.next, e, entryBytes+eventBytes+8*cap(e.Hashes)+4*cap(e.Tokens))
	if f.waiter != nil {
		close(f.waiter)
		f.waiter = nil
	}
}

// from returns events from number n on, up to feedAtOnce. If event n does not exist yet, it returns a channel that
// closes with the next event. gone reports that event n is no longer kept.
func (f *Feed) from(n uint64) (events []kv.Event, wait <-chan struct{}, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > f.next {
		if f.waiter == nil {
			f.waiter = make(chan struct{})
		}
		return nil, f.waiter, false
	}
	for ; n <= f.next && len(events) < feedAtOnce; n++ {
		e, ok := f.kept.Peek(n)
		if !ok {
			break
		}
		events = append(events, e)
	}
	return events, nil, len(events) == 0
}

func (f *Feed) last() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next
}

// subscribe answers SubscribeKvEvents until the client or the server leaves.
func (c *call) subscribe() {
	q := &vllmgrpc.SubscribeKvEventsRequest{}
	if !c.readOne(q) {
		return
	}
	if c.s.Feed == nil {
		c.fail(codes.FailedPrecondition, "this server publishes no KV events: start it with --kv-events-config")
		return
	}
	n := q.StartSequenceNumber
	if n == 0 {
		n = c.s.Feed.last() + 1
	}
	c.writeHead()
	c.Flush()
	for {
		events, wait, gone := c.s.Feed.from(n)
		switch {
		case gone:
			c.fail(codes.OutOfRange,
				fmt.Sprintf("event %d is no longer kept; the server keeps the last %d, as far as they fit into %d MiB",
					n, FeedLength, feedBytes>>20))
			return
		case wait != nil:
			select {
			case <-wait:
			case <-c.r.Context().Done():
				return
			case <-c.s.Leaving:
				c.fail(codes.Unavailable, "the server is shutting down")
				return
			}
			continue
		}
		var b []byte
		for i := range events {
			b = vllmgrpc.AppendMessage(b, batchOf(&events[i], n))
			n++
		}
		if _, err := c.Write(b); err != nil {
			return
		}
		c.Flush()
	}
}

// batchOf returns an event in the form of vLLM's service, with hashes as signed numbers.
func batchOf(e *kv.Event, number uint64) *vllmgrpc.KvEventBatch {
	level := int32(0)
	if e.Medium == "cpu" {
		level = 1
	}
	rank := int32(0)
	out := &vllmgrpc.KvCacheEvent{EventId: number}
	switch e.Kind {
	case kv.Stored:
		stored := &vllmgrpc.KvBlocksStored{}
		if e.Parent != 0 {
			parent := int64(e.Parent)
			stored.ParentBlockHash = &parent
		}
		for i, h := range e.Hashes {
			block := &vllmgrpc.KvBlock{BlockHash: int64(h), BlockSize: int32(e.BlockTokens), CacheLevel: &level}
			if len(e.Tokens) >= (i+1)*e.BlockTokens {
				block.TokenIds = e.Tokens[i*e.BlockTokens : (i+1)*e.BlockTokens]
			}
			if e.LoRAID != 0 {
				block.LoraId = &e.LoRAID
			}
			stored.Blocks = append(stored.Blocks, block)
		}
		out.Data = &vllmgrpc.KvCacheEvent_Stored{Stored: stored}
	case kv.Removed:
		removed := &vllmgrpc.KvBlocksRemoved{CacheLevel: &level}
		for _, h := range e.Hashes {
			removed.BlockHashes = append(removed.BlockHashes, int64(h))
		}
		out.Data = &vllmgrpc.KvCacheEvent_Removed{Removed: removed}
	default:
		out.Data = &vllmgrpc.KvCacheEvent_Cleared{Cleared: &vllmgrpc.KvCacheCleared{}}
	}
	return &vllmgrpc.KvEventBatch{SequenceNumber: number, Timestamp: e.At, Events: []*vllmgrpc.KvCacheEvent{out},
		DpRank: &rank}
}

// readOne reads the one message of a call. False means that the call has failed.
func (c *call) readOne(m proto.Message) bool {
	body, bad, ok := wire.ReadWhole(c.r, nil, c.s.MaxBodyBytes)
	switch {
	case bad != nil:
		c.fail(codes.Code(vllmgrpc.CodeOf(bad.Status)), bad.Message)
		return false
	case !ok:
		panic(http.ErrAbortHandler) // the client left
	}
	if err := vllmgrpc.ReadMessage(body, m); err != nil {
		code := codes.Internal
		if bad := new(vllmgrpc.Error); errors.As(err, &bad) {
			code = codes.Code(bad.Code)
		}
		c.fail(code, err.Error())
		return false
	}
	return true
}

// tokenizerPiece is the number of archive bytes in one message.
const tokenizerPiece = 1 << 20

// tokenizerFiles answers GetTokenizer with a zip archive that contains tokenizer.json. The tokenizer without a
// vocabulary has no files.
func (c *call) tokenizerFiles() {
	if !c.readOne(&vllmgrpc.GetTokenizerRequest{}) {
		return
	}
	if len(c.s.TokenizerJSON) == 0 {
		c.fail(codes.FailedPrecondition,
			"this server has no tokenizer files: four bytes of text are one token; give it some with --tokenizer DIR")
		return
	}
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	f, err := w.Create("tokenizer.json")
	if err == nil {
		_, err = f.Write(c.s.TokenizerJSON)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil { // writes to a buffer do not fail
		c.fail(codes.Internal, err.Error())
		return
	}
	sum := sha256.Sum256(archive.Bytes())
	for archive.Len() > 0 {
		chunk := &vllmgrpc.GetTokenizerChunk{Data: archive.Next(tokenizerPiece)}
		if archive.Len() == 0 {
			chunk.Sha256 = hex.EncodeToString(sum[:])
		}
		if _, err := c.Write(vllmgrpc.AppendMessage(nil, chunk)); err != nil {
			return // the client left
		}
		c.Flush()
	}
}
