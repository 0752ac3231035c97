package modelserver

import (
	"context"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// Leave ends the server's process as others see it. The server takes no new connection and no new request. Until ctx
// ends, it finishes its requests and the KV caches that other servers still fetch; then it cuts the rest and returns
// how many it cut. The engine's state is lost. Join starts the server again.
func (s *Server) Leave(ctx context.Context) (cut int) {
	s.engine.Send(&enginecore.Control{Control: engine.Control{Op: engine.OpDrain}})
	if s.http.Shutdown(ctx) != nil {
		cut = s.inFlight.value()
		_ = s.http.Close() // cuts the remaining connections
	}
	s.inFlight.wait()
	for s.keeps() && ctx.Err() == nil {
		pause.For(ctx, keepsInterval)
	}
	s.engine.Send(&enginecore.Control{Control: engine.Control{Op: engine.OpCrash}})
	return cut
}

// keepsInterval is how often Leave checks whether another server still has a KV cache to fetch.
const keepsInterval = 10 * time.Millisecond

// keeps reports whether the engine keeps or sends a KV cache for another server.
func (s *Server) keeps() (yes bool) {
	s.engine.With(func(machine.Time) { yes = s.engine.Core.Holds() > 0 })
	return yes
}

// Join makes a server that left listen again at the same address, with an empty cache. After an error it listens
// nowhere, and Join may be called again.
func (s *Server) Join() (err error) {
	l, err := s.listenAt(s.endpoint)
	if err != nil {
		return err
	}
	also := s.also
	if also != nil {
		also, err = s.listenAt(also.Addr().String())
	}
	if err == nil {
		err = s.Restart()
	}
	if err != nil {
		_ = l.Close() // the first error is the one to report
		if also != nil {
			_ = also.Close()
		}
		return err
	}
	s.listener, s.also, s.http = l, also, s.server()
	s.accept()
	return nil
}
