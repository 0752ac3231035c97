package epp

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// A picker that stops must go on until those who send to it have noticed:
// Envoy asks for its health every so often, and sends to it until it has been
// told NOT_SERVING once. So the server remembers who asks and how often, and
// waits for each of them to have asked again. Who has hung up, or has not asked
// for three of its intervals, is gone.

// settleAfterCheck is what a health checker gets to act on what it was told.
const settleAfterCheck = 50 * time.Millisecond

// maxCheckers bounds the connections that are remembered.
const maxCheckers = 256

type healthChecks struct {
	mu    sync.Mutex
	peers map[string]*checker
}

// checker is one connection that asks for health.
type checker struct {
	last     time.Time
	interval time.Duration // between its last two questions; 0 before the second
}

// intercept notes each question.
func (h *healthChecks) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if strings.HasPrefix(info.FullMethod, "/grpc.health.v1.Health/") {
		if p, ok := peer.FromContext(ctx); ok {
			h.asked(p.Addr.String(), time.Now())
		}
	}
	return resp, err
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

// gone says that a checker will not ask again: it asked only once, or has been
// silent for three of its intervals.
func (c *checker) gone(now time.Time) bool {
	return c.interval == 0 || now.Sub(c.last) > 3*c.interval+settleAfterCheck
}

// waiting says whether somebody who is still there has not asked since.
func (h *healthChecks) waiting(since time.Time) bool {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.peers {
		if c.last.Before(since) && !c.gone(now) || c.last.After(since) && c.interval > 0 && now.Sub(c.last) < settleAfterCheck {
			return true
		}
	}
	return false
}

// told returns when everybody who asks for health has asked since, or when ctx
// ends.
func (h *healthChecks) told(ctx context.Context, since time.Time) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for h.waiting(since) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watch forgets who hangs up.
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
	return &watchedConn{Conn: c, h: l.h}, nil
}

type watchedConn struct {
	net.Conn
	h *healthChecks
}

// Close hangs up.
func (c *watchedConn) Close() error {
	c.h.mu.Lock()
	delete(c.h.peers, c.RemoteAddr().String())
	c.h.mu.Unlock()
	return c.Conn.Close()
}
