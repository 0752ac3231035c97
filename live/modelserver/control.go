package modelserver

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/openai"
)

// control has the server do an operation and waits for its answer; false means
// that it was refused, or that the server is stopping.
func (s *Server) control(c *enginecore.Control) bool {
	result := make(chan bool, 1)
	if !s.loop.ask(func(now machine.Time) {
		s.loop.waiting[c] = result
		s.loop.core.Input(now, c, &s.loop.fx)
	}) {
		return false
	}
	select {
	case ok := <-result:
		return ok
	case <-s.loop.done:
		return false
	}
}

// controlled is told of the answer; it has the engine in hand.
func (s *Server) controlled(a *enginecore.Controlled) {
	s.dead.Store(s.loop.core.Dead())
	s.sleepLevel.Store(int32(s.loop.core.SleepLevel()))
	if to := s.loop.waiting[a.Control]; to != nil {
		to <- a.Done
		delete(s.loop.waiting, a.Control)
	}
}

// Fail has the engine die: engine.OpCrash, or engine.OpFailRank of one of its
// ranks. What it has in flight fails, and it is not healthy any more.
func (s *Server) Fail(c engine.Control) error {
	if err := s.loop.core.Config().CheckFailure(c); err != nil {
		return fmt.Errorf("model server %s: %w", s.name, err)
	}
	return s.live(c)
}

// Restart brings an engine back that has died, with an empty cache.
func (s *Server) Restart() error { return s.live(engine.Control{Op: engine.OpRestart}) }

func (s *Server) live(c engine.Control) error {
	if !s.control(&enginecore.Control{Control: c}) {
		return fmt.Errorf("model server %s: the engine refused operation %v: it is not in a state to", s.name, c.Op)
	}
	return nil
}

// sleep answers POST /sleep?level=1 (vLLM: --enable-sleep-mode). What is in
// flight is aborted; while asleep the server answers 503.
func (s *Server) sleep(w http.ResponseWriter, r *http.Request) {
	level := 1
	if v := r.URL.Query().Get("level"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > 2 {
			answer(w, openai.Errorf(400, "level", "level: expected 0, 1 or 2, got %q.", v))
			return
		}
		level = n
	}
	s.control(&enginecore.Control{Control: engine.Control{Op: engine.OpSleep}, Level: level})
	empty(w)
}

// wakeUp answers POST /wake_up. Tags are accepted; everything wakes.
func (s *Server) wakeUp(w http.ResponseWriter, r *http.Request) {
	s.control(&enginecore.Control{Control: engine.Control{Op: engine.OpWake}})
	empty(w)
}

// isSleeping answers GET /is_sleeping.
func (s *Server) isSleeping(w http.ResponseWriter, r *http.Request) {
	b := strconv.AppendBool([]byte(`{"is_sleeping":`), s.sleepLevel.Load() > 0)
	writeWhole(w, http.StatusOK, jsonType, append(b, '}'))
}

// resetPrefixCache answers POST /reset_prefix_cache. As with vLLM it is 200
// even when blocks are in use and nothing was reset.
func (s *Server) resetPrefixCache(w http.ResponseWriter, r *http.Request) {
	if !s.control(&enginecore.Control{Control: engine.Control{Op: engine.OpResetPrefixCache}}) {
		s.log.Warn("prefix cache not reset: blocks are in use", "server", s.name)
	}
	empty(w)
}

// empty answers 200 without a body.
func empty(w http.ResponseWriter) {
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(http.StatusOK)
}
