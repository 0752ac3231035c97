package epp

import (
	"cmp"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// A picker that stops must continue until its clients have noticed: Envoy checks its health at intervals, and sends to
// it until one check has answered NOT_SERVING. So the server remembers each client that checks and its interval, waits
// for each of them to check again, and then for new requests to stop. A client that has hung up, or has not checked for
// three of its intervals, is gone. A client that is connected and never checks, such as a Gateway that watches
// Kubernetes' pods, hears from another program that the picker leaves: for it, too, the server waits until new requests
// stop.

const (
	// quiet is how long no request may have come before the server assumes that none will.
	quiet = 500 * time.Millisecond
	// quietLimit bounds the wait for that, since a client may send without checking.
	quietLimit = 3 * time.Second
)

// guessedInterval is the assumed interval of a client after its first check: our Envoy's.
const guessedInterval = 500 * time.Millisecond

// maxCheckers bounds the connections that are remembered.
const maxCheckers = 256

type healthChecks struct {
	mu    sync.Mutex
	peers map[string]*checker
	open  int // connections
	// lastRequest is the start of the newest ext_proc stream, in Unix nanoseconds.
	lastRequest atomic.Int64
}

// checker is one connection that asks for health.
type checker struct {
	last     time.Time
	interval time.Duration // between its last two questions; 0 before the second
}

// intercept notes each question.
func (h *healthChecks) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if p, ok := peer.FromContext(ctx); ok && strings.HasPrefix(info.FullMethod, "/grpc.health.v1.Health/") {
		h.asked(p.Addr.String(), time.Now()) // before the answer: an earlier one may have had the old state
	}
	return handler(ctx, req)
}

func (h *healthChecks) asked(who string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.peers[who]
	if c == nil {
		if len(h.peers) >= maxCheckers {
			for k, old := range h.peers {
				if old.gone(now) {
					delete(h.peers, k)
				}
			}
			if len(h.peers) >= maxCheckers {
				return
			}
		}
		c = &checker{}
		h.peers[who] = c
	} else {
		c.interval = now.Sub(c.last)
	}
	c.last = now
}

// gone reports whether a client has ceased to check: it has been silent for three of its intervals. After its first
// check, the interval is a guess.
func (c *checker) gone(now time.Time) bool {
	interval := cmp.Or(c.interval, guessedInterval)
	return now.Sub(c.last) > 3*interval
}

// waiting returns the number of open connections, and whether a client that is not gone has not checked since.
func (h *healthChecks) waiting(since time.Time) (open int, waiting bool) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.peers {
		waiting = waiting || !c.gone(now) && c.last.Before(since)
	}
	return h.open, waiting
}

// awaitChecks returns when all clients that check health have checked since, and all clients have stopped sending, or
// when ctx ends.
func (h *healthChecks) awaitChecks(ctx context.Context, since time.Time) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.Time{}
	for {
		open, waiting := h.waiting(since)
		now := time.Now()
		switch {
		case open == 0:
			return
		case waiting:
		case limit.IsZero():
			limit = now.Add(quietLimit)
		case now.Sub(time.Unix(0, h.lastRequest.Load())) > quiet || now.After(limit):
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watch forgets clients that hang up.
func (h *healthChecks) watch(l net.Listener) net.Listener { return watchedListener{l, h} }

type watchedListener struct {
	net.Listener
	h *healthChecks
}

// Accept waits for a connection.
func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.h.mu.Lock()
	l.h.open++
	l.h.mu.Unlock()
	return &watchedConn{Conn: c, h: l.h}, nil
}

type watchedConn struct {
	net.Conn
	h      *healthChecks
	closed sync.Once
}

// Close hangs up.
func (c *watchedConn) Close() error {
	c.closed.Do(func() {
		c.h.mu.Lock()
		delete(c.h.peers, c.RemoteAddr().String())
		c.h.open--
		c.h.mu.Unlock()
	})
	return c.Conn.Close()
}
