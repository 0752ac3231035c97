package modelserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/bounded"
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/live/serve"
)

// A request names the server that its cache is fetched from. Which servers may
// be named is the operator's to say (Peers), whoever sent the request; and since
// a fetch holds blocks of the engine from its beginning, a server that has never
// answered is greeted first, without any. So nobody who never answers holds
// blocks, and who answers no more holds them for PeerTimeout.

// Peers are the servers from which KV caches may be fetched. The zero value is
// LocalPeers.
type Peers struct {
	any, local bool
	networks   []netip.Prefix
	names      []string
}

// Words that ParsePeers understands beside addresses.
const (
	LocalPeers = "local" // the addresses of this machine, the loopback among them
	AnyPeers   = "any"   // whoever a request names
)

// ParsePeers reads addresses, networks such as 10.244.0.0/16, names, and the
// words local and any. Names count as they are written: what they stand for is
// the operator's affair.
func ParsePeers(list []string) (Peers, error) {
	var p Peers
	for _, text := range list {
		if network, err := netip.ParsePrefix(text); err == nil {
			p.networks = append(p.networks, network.Masked())
			continue
		}
		if a, err := netip.ParseAddr(text); err == nil {
			p.networks = append(p.networks, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		switch host, err := serve.Advertised("", text, nil); {
		case text == LocalPeers:
			p.local = true
		case text == AnyPeers:
			p.any = true
		case err != nil || text == "":
			return p, fmt.Errorf("%q: expected an address, a network such as 10.244.0.0/16, a name, %s or %s", text, LocalPeers, AnyPeers)
		default:
			p.names = append(p.names, host)
		}
	}
	return p, nil
}

// allow tells whether a host may be dialled; a name is not looked up for it.
func (p *Peers) allow(host string) bool {
	if p.any || slices.Contains(p.names, host) {
		return true
	}
	local := p.local || len(p.networks)+len(p.names) == 0
	if host == "localhost" {
		return local
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	a = a.Unmap()
	return slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(a) }) ||
		local && (a.IsLoopback() || slices.Contains(serve.OwnAddresses(), a))
}

// mayFetch refuses a request that names a server which is no peer.
func (s *Server) mayFetch(from ...*remoteKV) *openai.Error {
	for _, kv := range from {
		if kv != nil && !s.opts.KVPeers.allow(kv.host) {
			return openai.Errorf(http.StatusForbidden, "kv_transfer_params", "%.100q is none of the servers that this one fetches KV caches from. Start it with --kv-peers to name them.", kv.host)
		}
	}
	return nil
}

// greeted are the peers that have answered once.
type greeted struct {
	mu    sync.Mutex
	known *bounded.Store[string, struct{}] // by address
}

const maxGreeted = 4096

func (g *greeted) note(address string, answers bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil {
		g.known = bounded.New[string, struct{}](bounded.Limits{Entries: maxGreeted}, nil)
	}
	if answers {
		g.known.Put(address, struct{}{}, 0)
	} else {
		g.known.Delete(address)
	}
}

func (g *greeted) has(address string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil {
		return false
	}
	_, ok := g.known.Get(address)
	return ok
}

func (kv *remoteKV) address() string { return net.JoinHostPort(kv.host, strconv.Itoa(kv.port)) }

// peerTimeout is how long a peer may take for the first byte of an answer.
func (s *Server) peerTimeout() time.Duration {
	if s.opts.PeerTimeout > 0 {
		return s.opts.PeerTimeout
	}
	return DefaultPeerTimeout
}

// meetPeer greets the server that a request's cache is to come from, if it has
// never answered. It is false where the request is over.
func (g *generation) meetPeer() bool {
	s, kv := g.s, g.req.kv.remote
	if kv == nil || s.peers.has(kv.address()) {
		return true
	}
	conn, _, err := s.dialPeer(g.ctx, kv, sideRequest{Op: "hello"}, 0)
	if err == nil {
		_ = conn.Close()
		return true
	}
	if gone := g.ctx.Err(); gone != nil {
		g.do(g.session.PeerGone(s.clock(), "the client left"))
		if errors.Is(context.Cause(g.ctx), context.Canceled) {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	s.log.Warn("KV transfer failed", "server", s.name, "from", kv.address(), "error", err)
	s.loop.ask(func(machine.Time) { s.loop.stats.FetchFailed(g.req.choices()) })
	if s.cfg.KVLoadFailure == engine.KVLoadRecompute {
		g.req.kv.remote = nil
		return true
	}
	status, text := serving.Failure(engine.ReasonKVFailed)
	return !g.do(g.session.Failed(s.clock(), status, text))
}

// sideConn is the asker's end of a side channel.
type sideConn struct {
	net.Conn
	answers *bufio.Reader
}

// maxAnswer is the longest answer that a peer may give, in bytes.
const maxAnswer = 4096

// dialPeer asks another server something. Its answer must have begun within
// PeerTimeout; where it is only that the cache is still to be computed, the next
// one has as long as patience. The connection stays open for the release.
func (s *Server) dialPeer(ctx context.Context, kv *remoteKV, q sideRequest, patience time.Duration) (*sideConn, sideAnswer, error) {
	first, cancel := context.WithTimeout(ctx, s.peerTimeout())
	defer cancel()
	var a sideAnswer
	conn, err := new(net.Dialer).DialContext(first, "tcp", kv.address())
	if err != nil {
		s.peers.note(kv.address(), false)
		return nil, a, err
	}
	until, _ := first.Deadline()
	_ = conn.SetDeadline(until)
	left := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // nobody waits for it any more
	c := &sideConn{conn, bufio.NewReaderSize(conn, maxAnswer)}
	a, err = c.ask(q)
	if err == nil && a.Waiting {
		_ = conn.SetDeadline(time.Now().Add(patience))
		a, err = c.answer()
	}
	if !left() {
		err = ctx.Err()
	} else {
		s.peers.note(kv.address(), err == nil)
	}
	if err == nil && !a.OK {
		err = fmt.Errorf("%.500s", a.Error)
	}
	if err != nil {
		_ = conn.Close()
		return nil, a, err
	}
	return c, a, nil
}

func (c *sideConn) ask(q sideRequest) (sideAnswer, error) {
	if err := writeLine(c, q); err != nil {
		return sideAnswer{}, err
	}
	return c.answer()
}

func (c *sideConn) answer() (a sideAnswer, err error) {
	line, err := c.answers.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	return a, err
}

// fetch is how a cache is asked for.
func (kv *remoteKV) fetch() sideRequest {
	if kv.key != "" {
		return sideRequest{Op: "await", EngineID: kv.engineID, Key: kv.key}
	}
	return sideRequest{Op: "get", EngineID: kv.engineID, Blocks: kv.blocks, Request: kv.request}
}
