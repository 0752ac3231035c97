package modelserver

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
)

// control has the engine do an operation and waits for its answer; false means
// that it was refused, or that the server is stopping.
func (s *Server) control(c engine.Control) bool {
	result := make(chan bool, 1)
	if !s.loop.ask(func(now machine.Time) {
		s.loop.waiting = append(s.loop.waiting, controlWait{c.Op, result})
		s.loop.eng.Input(now, c, &s.loop.fx)
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

// Fail has the engine die: engine.OpCrash, or engine.OpFailRank of one of its
// ranks. What it has in flight fails, and it is not healthy any more.
func (s *Server) Fail(c engine.Control) error {
	if c.Op != engine.OpCrash && c.Op != engine.OpFailRank || c.Rank < 0 || c.Rank >= max(1, s.opts.TensorParallel) {
		return fmt.Errorf("model server %s: operation %v on rank %d is no failure of an engine with %d ranks", s.name, c.Op, c.Rank, max(1, s.opts.TensorParallel))
	}
	return s.live(c)
}

// Restart brings an engine back that has died, with an empty cache.
func (s *Server) Restart() error { return s.live(engine.Control{Op: engine.OpRestart}) }

func (s *Server) live(c engine.Control) error {
	if !s.control(c) {
		return fmt.Errorf("model server %s: the engine refused operation %v: it is not in a state to", s.name, c.Op)
	}
	s.dead.Store(c.Op != engine.OpRestart)
	if c.Op == engine.OpRestart {
		s.sleepLevel.Store(0)
	}
	return nil
}

type controlWait struct {
	op     engine.Op
	result chan bool
}

// answered hands an answer to the oldest who waits for this operation.
func (l *loop) answered(f *engine.Effect) {
	for i, w := range l.waiting {
		if w.op == f.Op {
			w.result <- f.Kind == engine.ControlDone
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return
		}
	}
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
	if s.control(engine.Control{Op: engine.OpSleep}) {
		s.sleepLevel.Store(int32(max(level, 1)))
	}
	empty(w)
}

// wakeUp answers POST /wake_up. Tags are accepted; everything wakes.
func (s *Server) wakeUp(w http.ResponseWriter, r *http.Request) {
	if s.control(engine.Control{Op: engine.OpWake}) {
		s.sleepLevel.Store(0)
	}
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
	if !s.control(engine.Control{Op: engine.OpResetPrefixCache}) {
		s.log.Warn("prefix cache not reset: blocks are in use", "server", s.name)
	}
	empty(w)
}

// empty answers 200 without a body.
func empty(w http.ResponseWriter) {
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(http.StatusOK)
}
