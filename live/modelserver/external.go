package modelserver

import (
	"context"
	"sync"

	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/modelserver"
)

// external is the cache beside a fleet's servers, of the connectors that travel
// by one.
type external struct {
	mu    sync.Mutex
	store link.Store
}

func (x *external) put(hashes []uint64, writer int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.store.Put(hashes, writer)
}

func (x *external) find(hashes []uint64, reader int) (n, writer int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.store.Find(hashes, reader)
}

// ask asks another server how much of a prompt it has; one that does not answer
// has nothing.
func (s *Server) ask(ctx context.Context, at *modelserver.RemoteKV, hashes []uint64) sideAnswer {
	conn, a, err := s.dialPeer(ctx, at, sideRequest{Op: "find", Hashes: hashes}, 0)
	if err != nil {
		s.log.Warn("a source of cached blocks does not answer", "server", s.name, "error", err)
		return sideAnswer{}
	}
	_ = conn.Close() // that was all
	return a
}
