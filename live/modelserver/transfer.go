package modelserver

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
)

// pulls are the caches that this server is fetching from others, by the
// engine's handle.
type pulls struct {
	mu   sync.Mutex
	by   map[uint64]*pull
	done sync.WaitGroup
}

// pull is one cache on its way. Its goroutine asks, waits for the transfer,
// tells the engine, and releases the holder's blocks when the engine says so.
type pull struct {
	cancel  context.CancelFunc
	release chan struct{} // closed when the engine no longer needs the cache
	once    sync.Once
}

// startPull answers the engine's KVPull; it runs inside the loop.
func (s *Server) startPull(f *engine.Effect, q *seq) {
	ctx, cancel := context.WithCancel(s.ctx)
	p := &pull{cancel: cancel, release: make(chan struct{})}
	s.pulls.mu.Lock()
	if s.pulls.by == nil {
		s.pulls.by = map[uint64]*pull{}
	}
	s.pulls.by[f.Handle] = p
	s.pulls.mu.Unlock()
	effect, remote, lost := *f, q.params.remote, q.params.loseKV
	s.pulls.done.Go(func() {
		defer cancel()
		defer s.forgetPull(effect.Handle)
		s.pull(ctx, p, &effect, remote, lost)
	})
}

func (s *Server) forgetPull(handle uint64) {
	s.pulls.mu.Lock()
	delete(s.pulls.by, handle)
	s.pulls.mu.Unlock()
}

func (s *Server) pull(ctx context.Context, p *pull, f *engine.Effect, remote *remoteKV, lost bool) {
	id, tokens := f.Request, f.Count
	began := time.Now()
	var conn *sideConn
	var moved *transfer
	var err error
	from := remote.writer
	if !remote.stored {
		var a sideAnswer
		if conn, a, err = s.dialPeer(ctx, remote, remote.fetch(), s.cfg.KVHoldTimeout.Duration()); err == nil {
			defer conn.Close()
			from = s.nodeOf(cmp.Or(remote.engineID, a.EngineID))
		}
	}
	posted := time.Since(began).Seconds()
	if err == nil {
		moved, err = s.network.move(ctx, from, s.index, f.Bytes)
	}
	if err == nil && lost {
		err = errLost
	}
	if err != nil {
		s.log.Warn("KV transfer failed", "server", s.name, "from", remote.address(), "error", err)
		gone := ctx.Err() != nil // nobody waits for it any more
		s.loop.ask(func(now machine.Time) {
			if !gone {
				s.loop.stats.FetchFailed(1)
			}
			s.loop.eng.Input(now, engine.KVFailed{ID: id}, &s.loop.fx)
		})
	} else {
		took := time.Since(began).Seconds()
		s.loop.ask(func(now machine.Time) {
			s.loop.stats.Fetched(int(tokens), s.cfg.BlockSize, moved.bytes, posted, took)
			s.loop.eng.Input(now, engine.KVArrived{ID: id}, &s.loop.fx)
		})
	}
	if conn == nil {
		return
	}
	if moved != nil { // pipelined: the rest is still being read from the holder's blocks
		select {
		case <-moved.whole:
		case <-s.ctx.Done():
		}
	}
	select {
	case <-p.release:
		s.release(conn)
	case <-s.ctx.Done():
	}
}

// endPull answers the engine's KVRelease.
func (s *Server) endPull(handle uint64, q *seq) {
	s.pulls.mu.Lock()
	p := s.pulls.by[handle]
	s.pulls.mu.Unlock()
	if p != nil {
		p.once.Do(func() { close(p.release) })
		p.cancel() // ends a transfer that is still running
		return
	}
	// Nothing was fetched: all of it was here already, or nobody waits for it
	// any more. The holder need not keep it until its time is up.
	if q == nil || q.params.remote == nil || q.params.remote.stored || s.ctx.Err() != nil {
		return
	}
	remote := q.params.remote
	s.pulls.done.Go(func() {
		conn, _, err := s.dialPeer(s.ctx, remote, remote.fetch(), s.peerTimeout())
		if err != nil {
			return // it has let go by itself
		}
		defer conn.Close()
		s.release(conn)
	})
}

// release tells a holder that its blocks are not needed any more.
func (s *Server) release(conn *sideConn) {
	_ = conn.SetDeadline(time.Now().Add(s.peerTimeout()))
	if _, err := conn.ask(sideRequest{Op: "release"}); err != nil {
		s.log.Warn("KV not released: the holder keeps it until its time is up", "server", s.name, "error", err)
	}
}

// nodeOf is the network node of the server that holds a cache.
func (s *Server) nodeOf(engineID string) int {
	for _, o := range s.fleet.servers {
		if o.engineID == engineID {
			return o.index
		}
	}
	return len(s.fleet.servers) // somewhere outside
}

// onKV takes what the engine says of KV blocks; it runs inside the loop.
func (s *Server) onKV(fx *engine.Effects, f *engine.Effect, q *seq) {
	switch f.Kind {
	case engine.KVHeld:
		if q == nil {
			return
		}
		h := s.holds.add(f.Handle, int(f.Count), q.submit.PromptTokens)
		s.holds.name(h, q.params.key)
		q.box.mu.Lock()
		q.box.kv = h
		q.box.mu.Unlock()
	case engine.KVFreed:
		s.holds.remove(f.Handle)
	case engine.KVPull:
		if q != nil && q.params.remote != nil {
			s.startPull(f, q)
		}
	case engine.KVRelease:
		s.endPull(f.Handle, q)
	default:
		s.publish(fx, f, q)
	}
}
