package enginecore

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
)

// event reports the engine's changes of its blocks as KV events. As in vLLM, blocks that moved to host memory, long
// after their request, have no tokens. The Core reports no event about other blocks with unknown tokens.
func (s *Core) event(number int32, q *Sequence) {
	f := &s.fx.Engine.List[number]
	effect := Effect{At: f.At, Engine: number, Sequence: q}
	if s.c.Publish {
		e := kv.Event{Medium: f.Tier.String(), Group: kv.NoGroup}
		hashes := s.fx.Engine.BlockHashes(f)
		if len(hashes) > 0 {
			e.Hashes = make([]kv.EngineHash, len(hashes))
		}
		for i, h := range hashes {
			e.Hashes[i] = kv.EngineHash(h)
		}
		switch size := s.cfg.BlockSize; {
		case f.Kind == engine.BlockRemoved:
			e.Kind = kv.Removed
		case f.Kind == engine.AllBlocksCleared:
			e.Kind = kv.Cleared
		case f.Tier == engine.TierCPU:
			e.Kind, e.BlockTokens = kv.Stored, size
		case q != nil && q.Tokens != nil:
			e.Kind, e.Parent, e.BlockTokens = kv.Stored, kv.EngineHash(f.Parent), size
			e.Tokens = q.Tokens(int(f.First)*size, int(f.Count)*size)
			e.LoRAID, e.LoRAName = int64(q.Submit.Adapter), q.Counted.Adapter
		}
		if e.Kind != 0 {
			effect.Do = Event{e}
		}
	}
	s.fx.List = append(s.fx.List, effect)
}
