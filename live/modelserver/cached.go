package modelserver

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Cached returns the engine's own names for the blocks in its KV cache, on any tier. After Stop it returns none.
func (s *Server) Cached() (held []kv.EngineHash) {
	s.engine.With(func(machine.Time) { held = s.engine.Core.Cached() })
	return held
}
