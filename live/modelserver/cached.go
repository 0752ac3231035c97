package modelserver

import (
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Cached are the engine's own names for the blocks in its KV cache, on any
// tier. After Stop there are none.
func (s *Server) Cached() []kv.EngineHash {
	var held []kv.EngineHash
	s.loop.ask(func(machine.Time) {
		s.loop.eng.Cached(func(hash uint64, _ engine.Tier) { held = append(held, kv.EngineHash(hash)) })
	})
	return held
}
