package modelserver

import (
	"net/http"
	"time"

	"github.com/windtunnel/windtunnel/core/openai"
)

// A server that does not fit into its memory is killed while it starts, and
// Kubernetes starts it again: at once, and then after pauses that double from
// 10 s to 5 min (CrashLoopBackOff). It never serves. The port stays open, so
// that a person who asks is told why; a real pod would refuse the connection.

const (
	firstBackOff = 10 * time.Second
	lastBackOff  = 5 * time.Minute
)

// crashLoop counts the kills until the server stops.
func (s *Server) crashLoop() {
	s.dead.Store(true)
	pause := firstBackOff
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return
		}
		s.log.Warn("OOMKilled", "server", s.name, "restarts", s.kills.Add(1)-1, "back-off", pause, "error", s.opts.OutOfMemory)
		timer.Reset(pause)
		pause = min(2*pause, lastBackOff)
	}
}

// killed answers every request to such a server.
func (s *Server) killed(w http.ResponseWriter, r *http.Request) {
	closeAfter(w, r)
	answer(w, openai.Errorf(http.StatusServiceUnavailable, "", "OOMKilled (CrashLoopBackOff, %d restarts): %v.", max(0, s.kills.Load()-1), s.opts.OutOfMemory))
}
