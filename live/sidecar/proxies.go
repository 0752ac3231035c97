package sidecar

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
)

// proxies are the transports to the latest sixteen prefill servers, each with its own connections (document 003,
// Routing Sidecar Flow).
type proxies struct {
	by   *lru.Cache[proxyKey, *http.Transport]
	tls  LegTLS
	ca   authorities
	idle int
}

// proxyKey holds everything that a transport depends on. It contains the address that was checked against the
// allowlist, so a name that resolves differently after the check leads nowhere else.
type proxyKey struct {
	secure bool
	host   string
	port   int
	addr   netip.Addr
}

func newProxies(o LegTLS, ca authorities, idle int) (*proxies, error) {
	by, err := lru.NewWithEvict(proxyCache, func(_ proxyKey, t *http.Transport) { t.CloseIdleConnections() })
	return &proxies{by: by, tls: o, ca: ca, idle: idle}, err
}

// to sets a URL's scheme and host to those of a target, and returns the transport to the target.
func (p *proxies) to(t *disagg.Target, u *url.URL) *http.Transport {
	key := proxyKey{t.TLS || p.tls.On && !t.Plain, t.Host, t.Port, t.Addr}
	u.Host = net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	if u.Scheme = "http"; key.secure {
		u.Scheme = "https"
	}
	if way, ok := p.by.Get(key); ok {
		return way
	}
	way := transport(p.idle)
	if t.Addr.IsValid() {
		dial := way.DialContext
		address := netip.AddrPortFrom(t.Addr, uint16(t.Port)).String()
		way.DialContext = func(ctx context.Context, network, _ string) (net.Conn,
			error) {
			return dial(ctx, network, address)
		}
	}
	if key.secure {
		way.TLSClientConfig = legTLS(p.tls, []string{t.Host}, p.ca)
	}
	if other, ok, _ := p.by.PeekOrAdd(key, way); ok {
		return other // a concurrent request stored it first; way has no connections yet
	}
	return way
}

func (p *proxies) close() { p.by.Purge() }

func transport(idle int) *http.Transport {
	d := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: idle, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, WriteBufferSize: 16 << 10, ReadBufferSize: 16 << 10}
}
