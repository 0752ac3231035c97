package modelserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/bounded"
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
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

func addressOf(kv *modelserver.RemoteKV) string {
	return net.JoinHostPort(kv.Host, strconv.Itoa(kv.Port))
}

// peerTimeout is how long a peer may take for the first byte of an answer.
func (s *Server) peerTimeout() time.Duration {
	if s.opts.PeerTimeout > 0 {
		return s.opts.PeerTimeout
	}
	return DefaultPeerTimeout
}

// meetPeer greets the server that a request's cache is to come from, if it has
// never answered. It is false where that ends the request.
func (g *generation) meetPeer() bool {
	s, q := g.s, g.resp.Request()
	kv := q.KV.Remote
	if kv == nil || s.peers.has(addressOf(kv)) {
		return true
	}
	conn, _, err := s.dialPeer(g.ctx, kv, sideRequest{Op: "hello"}, 0)
	if err == nil {
		_ = conn.Close()
		return true
	}
	if g.ctx.Err() != nil {
		g.broke(modelserver.Progress{Gone: g.gone()})
		return false
	}
	s.log.Warn("KV transfer failed", "server", s.name, "from", addressOf(kv), "error", err)
	s.loop.ask(func(machine.Time) { s.loop.stats.failedTransfers += uint64(q.Choices()) })
	if s.cfg.KVLoadFailure == engine.KVLoadRecompute {
		q.KV.Remote = nil
		return true
	}
	status, text := serving.Failure(engine.ReasonKVFailed)
	g.resp.Fail(s.clock(), status, text, &g.fx)
	return false
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
func (s *Server) dialPeer(ctx context.Context, kv *modelserver.RemoteKV, q sideRequest, patience time.Duration) (*sideConn, sideAnswer, error) {
	first, cancel := context.WithTimeout(ctx, s.peerTimeout())
	defer cancel()
	var a sideAnswer
	conn, err := new(net.Dialer).DialContext(first, "tcp", addressOf(kv))
	if err != nil {
		s.peers.note(addressOf(kv), false)
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
		s.peers.note(addressOf(kv), err == nil)
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

// fetchOf is how a cache is asked for.
func fetchOf(kv *modelserver.RemoteKV) sideRequest {
	if kv.Key != "" {
		return sideRequest{Op: "await", EngineID: kv.EngineID, Key: kv.Key}
	}
	return sideRequest{Op: "get", EngineID: kv.EngineID, Blocks: kv.Blocks, Request: kv.Request}
}
