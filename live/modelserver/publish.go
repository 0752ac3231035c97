package modelserver

import (
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/kv"
)

// KVPublisher takes the KV events of one server, in order. It batches and
// sends them by itself and never blocks: the engine waits for it.
type KVPublisher interface {
	Publish(kv.Event)
	// Close sends what is left and ends the publisher.
	Close()
}

// publish turns what the engine says of its blocks into an event.
func (s *Server) publish(fx *engine.Effects, f *engine.Effect, q *seq) {
	if s.publisher == nil {
		return
	}
	e := kv.Event{Medium: f.Tier.String(), Group: kv.NoGroup, At: unixSeconds(time.Now())}
	for _, h := range fx.BlockHashes(f) {
		e.Hashes = append(e.Hashes, kv.EngineHash(h))
	}
	switch f.Kind {
	case engine.BlockStored:
		if f.Tier == engine.TierCPU { // moved there long after its request; vLLM then sends no tokens
			e.Kind, e.BlockTokens = kv.Stored, s.cfg.BlockSize
			break
		}
		if q == nil || q.params.tokens == nil {
			return
		}
		e.Kind, e.Parent, e.BlockTokens = kv.Stored, kv.EngineHash(f.Parent), s.cfg.BlockSize
		e.Tokens = q.params.tokens(int(f.First)*s.cfg.BlockSize, int(f.Count)*s.cfg.BlockSize)
		e.LoRAID, e.LoRAName = int64(q.submit.Adapter), q.counted.Adapter
	case engine.BlockRemoved:
		e.Kind = kv.Removed
	case engine.AllBlocksCleared:
		e.Kind = kv.Cleared
	default:
		return
	}
	s.publisher.Publish(e)
	s.feed.add(e)
}
