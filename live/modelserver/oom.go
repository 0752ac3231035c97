package modelserver

import (
	"net/http"

	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// A server that does not fit into its memory never serves (enginecore.Kills). Its port stays open so that a request
// gets the reason as its answer; a real pod would refuse the connection.

// crashLoop logs the kills until the server stops.
func (s *Server) crashLoop() {
	for {
		n, backOff := enginecore.Kills(s.clock())
		s.log.Warn("OOMKilled", "server", s.name, "restarts", n-1, "back-off", backOff.Duration(), "error",
			s.opts.OutOfMemory)
		if !pause.For(s.ctx, backOff.Duration()) {
			return
		}
	}
}

// killed answers every request to such a server.
func (s *Server) killed(w http.ResponseWriter, r *http.Request) {
	refuse(w, r, s.engine.Core.Refuses(s.clock()))
}
