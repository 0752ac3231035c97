package sidecar

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

const resolveTTL = 30 * time.Second

// peers are the addresses of the peers that MoRI-IO's legs name. The first look-up of a name is at the start and must
// succeed. When an address has expired, the next request starts one goroutine that looks the name up again. Until that
// look-up succeeds, all requests use the old address.
type peers struct {
	names        connector.MoRIIOPeers
	ttl, timeout time.Duration
	log          *slog.Logger
	lookUp       func(ctx context.Context, host string) ([]netip.Addr, error)

	ctx    context.Context // ends when the sidecar stops
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	known  map[string]*address

	resolved, changed, failed prometheus.Counter
}

type address struct {
	ip     string
	at     time.Time
	asking bool
}

func newPeers(ctx context.Context, o *Options, m *metrics) (*peers, error) {
	p := &peers{names: o.Peers, ttl: cmp.Or(max(o.ResolveTTL, 0), resolveTTL),
		timeout: cmp.Or(max(o.ResolveTimeout, 0), resolveTimeout), log: o.Log, known: map[string]*address{},
		lookUp: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		resolved: m.reresolved, changed: m.ipChanged, failed: m.lookupFailures}
	p.ctx, p.cancel = context.WithCancel(ctx)
	for _, list := range [][]string{{p.names.Local}, p.names.Decode, p.names.Prefill} {
		for _, name := range list {
			if _, err := netip.ParseAddr(name); err == nil || name == "" || p.known[name] != nil {
				continue
			}
			ip, err := p.ask(name)
			if err != nil {
				p.close()
				return nil, fmt.Errorf("MoRI-IO peer: %w", err)
			}
			p.known[name] = &address{ip: ip, at: time.Now()}
		}
	}
	return p, nil
}

// ask looks a name up. It prefers IPv4.
func (p *peers) ask(name string) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.timeout)
	defer cancel()
	list, err := p.lookUp(ctx, name)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fmt.Errorf("%s has no address", name)
	}
	for _, a := range list {
		if a.Unmap().Is4() {
			return a.Unmap().String(), nil
		}
	}
	return list[0].String(), nil
}

// now returns the known addresses of the peers.
func (p *peers) now() connector.MoRIIOPeers {
	all := func(names []string) []string {
		var out []string
		for _, n := range names {
			out = append(out, p.one(n))
		}
		return out
	}
	return connector.MoRIIOPeers{Local: p.one(p.names.Local), Decode: all(p.names.Decode),
		Prefill: all(p.names.Prefill)}
}

func (p *peers) one(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.known[name]
	if a == nil {
		return name // the name is an address
	}
	if time.Since(a.at) >= p.ttl && !a.asking {
		a.asking = true
		p.wg.Go(func() { p.refresh(name, a) })
	}
	return a.ip
}

func (p *peers) refresh(name string, a *address) {
	ip, err := p.ask(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	a.asking = false
	if err != nil {
		p.failed.Inc()
		p.log.Warn("a MoRI-IO peer cannot be resolved; its last address stays", "host", name, "error", err)
		return
	}
	p.resolved.Inc()
	a.at = time.Now()
	if a.ip != ip {
		p.changed.Inc()
		p.log.Info("a MoRI-IO peer has another address", "host", name, "was", a.ip, "is", ip)
		a.ip = ip
	}
}

func (p *peers) close() {
	p.cancel()
	p.wg.Wait()
}
