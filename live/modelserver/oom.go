package modelserver

import (
	"net/http"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver"
)

// crashLoop counts the kills of a server that does not fit into its memory,
// until it stops. The port stays open, so that a person who asks is told why; a
// real pod would refuse the connection.
func (s *Server) crashLoop() {
	s.dead.Store(true)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return
		}
		restarts := int(s.kills.Add(1)) - 1
		pause := modelserver.BackOff(restarts).Duration()
		s.log.Warn("OOMKilled", "server", s.name, "restarts", restarts, "back-off", pause, "error", s.opts.OutOfMemory)
		timer.Reset(pause)
	}
}

// killed answers every request to such a server.
func (s *Server) killed(w http.ResponseWriter, r *http.Request) {
	closeAfter(w, r)
	answer(w, modelserver.Killed(max(0, int(s.kills.Load())-1), s.opts.OutOfMemory))
}
