package modelserver

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// Fail makes the engine die: engine.OpCrash, or engine.OpFailRank for one of its ranks. The engine's requests fail, and
// the server is no longer healthy.
func (s *Server) Fail(c engine.Control) error {
	if err := s.engine.Core.Config().CheckFailure(c); err != nil {
		return fmt.Errorf("model server %s: %w", s.name, err)
	}
	return s.live(c)
}

// Hold stops the engine until release is called. Its requests, and readers of its metrics, wait.
func (s *Server) Hold() (release func()) { return s.engine.Hold() }

// Restart starts a dead engine again, with an empty cache.
func (s *Server) Restart() error { return s.live(engine.Control{Op: engine.OpRestart}) }

func (s *Server) live(c engine.Control) error {
	if !s.engine.Operate(c) {
		return fmt.Errorf("model server %s: the engine refused operation %v: it is not in a state to", s.name, c.Op)
	}
	return nil
}

// sleep answers POST /sleep?level=1 (vLLM: --enable-sleep-mode). It aborts the requests in flight. While asleep, the
// server answers 503.
func (s *Server) sleep(w http.ResponseWriter, r *http.Request) {
	level := 1
	if v := r.URL.Query().Get("level"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > 2 {
			wire.Answer(w, openai.BadRequest("level", "level: expected 0, 1 or 2, got %q.", v))
			return
		}
		level = n
	}
	if s.opts.IgnoreSleep {
		s.log.Info("POST /sleep does nothing without --enable-sleep-mode", "server", s.name)
	} else {
		s.engine.Control(&enginecore.Control{Control: engine.Control{Op: engine.OpSleep}, Level: level})
	}
	wire.Empty(w)
}

// wakeUp answers POST /wake_up. It accepts tags, but always wakes everything.
func (s *Server) wakeUp(w http.ResponseWriter, r *http.Request) {
	s.engine.Operate(engine.Control{Op: engine.OpWake})
	wire.Empty(w)
}

// isSleeping answers GET /is_sleeping.
func (s *Server) isSleeping(w http.ResponseWriter, r *http.Request) {
	wire.Fill(w, `{"is_sleeping":$}`, s.engine.SleepLevel() > 0)
}

// resetPrefixCache answers POST /reset_prefix_cache. Like vLLM, it answers 200 even if blocks are in use and nothing
// was reset.
func (s *Server) resetPrefixCache(w http.ResponseWriter, r *http.Request) {
	if !s.engine.Operate(engine.Control{Op: engine.OpResetPrefixCache}) {
		s.log.Warn("prefix cache not reset: blocks are in use", "server", s.name)
	}
	wire.Empty(w)
}
