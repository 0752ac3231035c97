package envoy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	keysv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/live/envoy/xds"
)

// Dynamic is the configuration that a control plane sends to Envoy: a Program of manifests in Envoy's terms, with the
// addresses that only a running stack knows.
type Dynamic struct {
	Program *gateway.Program
	// Listen returns the address where a Gateway's port listens, ip:port; "" does not open the port.
	Listen func(g *gateway.Served, port int) string
	// Pickers are the endpoint pickers of pools, by the backends' keys. A pool without a picker answers 503.
	Pickers map[string]Processor
	// Routers are the body-based routers, by their keys.
	Routers map[string]Processor
	// Endpoints are the backends' servers (ip:port), by their keys.
	Endpoints map[string][]string
	// Certificate returns the certificate and key (PEM) of a listener without a Secret.
	Certificate func(g *gateway.Served, s *gateway.Secure) (cert, key []byte, err error)
	// Limits and AccessLog are the same as in Config.
	Limits    proxy.Limits
	AccessLog string
}

// pickerCluster returns the name of a pool's endpoint picker, from the pool's key.
func pickerCluster(key string) string { return "picker" + strings.TrimPrefix(key, "pool") }

// Resources translates the Program to Envoy's resources.
func (d Dynamic) Resources() (xds.State, error) {
	t := translation{Dynamic: d, r: xds.State{},
		writer: writer{limits: d.Limits.WithDefaults(), accessLog: d.AccessLog}}
	for _, b := range d.Program.Backends {
		t.backend(b)
	}
	for _, r := range d.Program.Routers {
		t.processor(r.Key, d.Routers[r.Key])
	}
	for _, g := range d.Program.Gateways {
		for _, p := range g.Ports {
			if at := d.Listen(g, p.Number); at != "" {
				t.port(g, p, at)
			}
		}
	}
	var all []interface{ ValidateAll() error }
	for _, list := range t.r {
		for _, x := range list {
			all = append(all, x.(interface{ ValidateAll() error }))
		}
	}
	return t.r, t.check(all...)
}

type translation struct {
	Dynamic
	writer
	r xds.State
}

// backend adds a backend's cluster and the cluster of its picker. The endpoints of both are separate resources, so they
// can change without the clusters.
func (t *translation) backend(b *gateway.Backend) {
	s := servers{name: b.Key, host: b.Name, http2: b.HTTP2, routing: RoundRobin, health: b.Health, limits: b.Limits,
		from: fromControl()}
	if b.Pool != nil {
		s.routing = OverrideHost
		p := t.Pickers[b.Key]
		p.FailOpen = b.FailOpen
		t.processor(pickerCluster(b.Key), p)
	}
	t.r.Add(b.Key, t.servers(s))
	t.r.Add(b.Key, t.assignment(b.Key, t.Endpoints[b.Key]))
}

// processor adds the cluster of an ext_proc server.
func (t *translation) processor(name string, p Processor) {
	t.r.Add(name, t.processors(name, p, fromControl()))
	t.r.Add(name, t.assignment(name, p.Addresses))
}

func (t *translation) port(g *gateway.Served, p *gateway.Port, at string) {
	var tables []*gateway.Table
	if p.Table != nil {
		tables = append(tables, p.Table)
	}
	for _, s := range p.Secure {
		tables = append(tables, s.Table)
	}
	var asked []gateway.Asking
	for _, table := range tables {
		for _, h := range table.Hosts {
			for _, r := range h.Routes {
				if r.Asking != nil {
					asked = append(asked, *r.Asking)
				}
			}
		}
	}
	l := t.listener(fmt.Sprintf("%s/%s/%d", g.Namespace, g.Name, p.Number), at, asked...)
	t.r.Add(l.Name, l)
	if p.Table != nil {
		l.FilterChains = []*listenerv3.FilterChain{t.table(g, p.Table, at)}
		return
	}
	l.ListenerFilters = []*listenerv3.ListenerFilter{{Name: "envoy.filters.listener.tls_inspector",
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: t.pack(&inspectorv3.TlsInspector{})}}}
	for _, s := range p.Secure {
		chain := t.table(g, s.Table, at)
		chain.TransportSocket, chain.Name = t.serveTLS(g, s), s.Table.Name
		if s.Hostname != "" {
			chain.FilterChainMatch = &listenerv3.FilterChainMatch{ServerNames: []string{s.Hostname}}
		}
		l.FilterChains = append(l.FilterChains, chain)
	}
}

// table adds a table's routes and returns the filter chain of its listener. A body-based router sees every request but
// no responses. Each route that uses a picker asks its own pool's.
func (t *translation) table(g *gateway.Served, table *gateway.Table, at string) *listenerv3.FilterChain {
	var filters []*hcmv3.HttpFilter
	routed := g.Router != nil
	if keys := g.Keys(); !routed || keys != nil {
		all := &keysv3.ApiKeyAuth{}
		if routed {
			all = keyFilter(keys)
		}
		filters = append(filters, t.filter(keysFilter, all, !routed))
	}
	if routed {
		filter := externalProcessor(g.Router.Key, t.Routers[g.Router.Key].withDefaults().Asking)
		filter.ProcessingMode.ResponseHeaderMode,
			filter.ProcessingMode.ResponseTrailerMode = extprocv3.ProcessingMode_SKIP, extprocv3.ProcessingMode_SKIP
		filter.ProcessingMode.ResponseBodyMode = extprocv3.ProcessingMode_NONE
		filters = append(filters, t.filter(bodyRouterFilter, filter, false))
	}
	limited := false
	pickers := map[string]time.Duration{pickerFilter: 0}
	c := &routev3.RouteConfiguration{Name: table.Name, IgnorePortInHostMatching: true}
	for _, h := range table.Hosts {
		domain := cmp.Or(h.Domain, "*")
		host := &routev3.VirtualHost{Name: domain, Domains: []string{domain}, IncludeRequestAttemptCount: true}
		for _, r := range h.Routes {
			host.Routes = append(host.Routes, t.route(r, at)...)
			limited = limited || r.RateLimit != nil
			if r.Asking != nil {
				pickers[askingFilter(r)] = r.Asking.Timeout
			}
		}
		c.VirtualHosts = append(c.VirtualHosts, host)
	}
	t.r.Add(table.Name, c)
	if limited { // on behind a router, for the reason below
		filters = append(filters, t.filter(rateLimitFilter, rateFilter(nil), !routed))
	}
	for _, name := range slices.Sorted(maps.Keys(pickers)) {
		var p Processor
		p.Timeout = pickers[name]
		filter := externalProcessor(unusable, p.withDefaults().Asking)
		if routed {
			// Envoy decides which filters are off by the first route that matches, which is not yet the route that the
			// body leads to. So behind a router the filters are on, but see nothing by default.
			filter.ProcessingMode = unseen()
		}
		filters = append(filters, t.filter(name, filter, !routed))
	}
	return t.chain(filters, func(m *hcmv3.HttpConnectionManager) {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: fromControl(), RouteConfigName: table.Name}}
	})
}

func (t *translation) serveTLS(g *gateway.Served, s *gateway.Secure) *corev3.TransportSocket {
	common := &tlsv3.CommonTlsContext{AlpnProtocols: []string{"h2", "http/1.1"}}
	add := func(cert, key []byte) {
		inline := func(b []byte) *corev3.DataSource {
			return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
		}
		common.TlsCertificates = append(common.TlsCertificates,
			&tlsv3.TlsCertificate{CertificateChain: inline(cert), PrivateKey: inline(key)})
	}
	for _, secret := range s.Certificates {
		cert, _ := secret.Get("tls.crt")
		key, _ := secret.Get("tls.key")
		add(cert, key)
	}
	if len(s.Certificates) == 0 {
		cert, key, err := t.Certificate(g, s)
		if err != nil {
			t.fail(err)
		}
		add(cert, key)
	}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: t.pack(&tlsv3.DownstreamTlsContext{CommonTlsContext: common})}}
}
