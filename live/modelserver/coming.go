package modelserver

import (
	"context"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Leave ends the server's process, as far as others see it: it takes no new connection and no
// new request, finishes what it has and what others still fetch until ctx ends, and cuts the rest, of which it says how
// many. What its engine knew is lost. Join has it begin anew.
func (s *Server) Leave(ctx context.Context) (cut int) {
	s.engine.Send(&enginecore.Control{Control: engine.Control{Op: engine.OpDrain}})
	if s.http.Shutdown(ctx) != nil {
		cut = s.inFlight.value()
		_ = s.http.Close() // what is left is cut
	}
	s.inFlight.wait()
	for s.keeps() && ctx.Err() == nil {
		pause.For(ctx, keepsInterval)
	}
	s.engine.Send(&enginecore.Control{Control: engine.Control{Op: engine.OpCrash}})
	return cut
}

// keepsInterval is how often a server that leaves is asked whether somebody still has a KV cache
// to fetch from it.
const keepsInterval = 10 * time.Millisecond

// keeps says whether the engine keeps or sends a KV cache for another server.
func (s *Server) keeps() (yes bool) {
	s.engine.With(func(machine.Time) { yes = s.engine.Core.Holds() > 0 })
	return yes
}

// Join has a server that left listen again where it did, with an empty cache. After an
// error it listens nowhere, and may be asked again.
func (s *Server) Join() (err error) {
	l, err := serve.Listen("a model server", s.endpoint)
	if err != nil {
		return err
	}
	also := s.also
	if also != nil {
		also, err = serve.Listen("a model server", also.Addr().String())
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
