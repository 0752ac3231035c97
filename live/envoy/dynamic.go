package envoy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	keysv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// Dynamic is what a control plane tells Envoy: a Program of manifests in Envoy's
// words, with the addresses that only a running stack knows.
type Dynamic struct {
	Program *gateway.Program
	// Listen is where a Gateway's port listens, ip:port; "" does not open it.
	Listen func(g *gateway.Served, port int) string
	// Pickers are the endpoint pickers of pools, by the backends' keys. A pool
	// without one answers 503.
	Pickers map[string]Processor
	// Routers are the body-based routers, by their keys.
	Routers map[string]Processor
	// Endpoints are the backends' servers (ip:port), by their keys.
	Endpoints map[string][]string
	// Certificate is the certificate and key (PEM) of a listener without a Secret.
	Certificate func(g *gateway.Served, s *gateway.Secure) (cert, key []byte, err error)
	// Limits and AccessLog are Config's.
	Limits    Limits
	AccessLog string
}

// Resources are listeners, routes, clusters and endpoints by their names.
type Resources struct {
	Listeners map[string]*listenerv3.Listener
	Routes    map[string]*routev3.RouteConfiguration
	Clusters  map[string]*clusterv3.Cluster
	Endpoints map[string]*endpointv3.ClusterLoadAssignment
}

// pickerCluster is the name of a pool's endpoint picker, by the pool's key.
func pickerCluster(key string) string { return "picker" + strings.TrimPrefix(key, "pool") }

// Resources translates.
func (d Dynamic) Resources() (*Resources, error) {
	t := translation{Dynamic: d, c: Config{Limits: d.Limits, AccessLog: d.AccessLog}.WithDefaults(),
		r: &Resources{map[string]*listenerv3.Listener{}, map[string]*routev3.RouteConfiguration{},
			map[string]*clusterv3.Cluster{}, map[string]*endpointv3.ClusterLoadAssignment{}}}
	for _, b := range d.Program.Backends {
		if err := t.backend(b); err != nil {
			return nil, err
		}
	}
	for _, r := range d.Program.Routers {
		if err := t.processor(r.Key, d.Routers[r.Key].withDefaults(), FailClose); err != nil {
			return nil, err
		}
	}
	for _, g := range d.Program.Gateways {
		for _, p := range g.Ports {
			if err := t.port(g, p); err != nil {
				return nil, err
			}
		}
	}
	return t.r, t.r.check()
}

func (r *Resources) check() error {
	var all []interface{ ValidateAll() error }
	for _, x := range r.Listeners {
		all = append(all, x)
	}
	for _, x := range r.Routes {
		all = append(all, x)
	}
	for _, x := range r.Clusters {
		all = append(all, x)
	}
	for _, x := range all {
		if err := x.ValidateAll(); err != nil {
			return fail(BadConfig, err, "the configuration breaks a rule of Envoy's: %v", err)
		}
	}
	return nil
}

type translation struct {
	Dynamic
	c Config
	r *Resources
}

// backend makes a backend's cluster, and that of its picker. The endpoints of
// both come by themselves, so that they change without it.
func (t *translation) backend(b *gateway.Backend) error {
	pool := Pool{Name: b.Key, Protocol: HTTP1, ConnectTimeout: 5 * time.Second}
	if b.HTTP2 {
		pool.Protocol = HTTP2
	}
	options, err := httpOptions(pool.Protocol)
	if err != nil {
		return err
	}
	cluster := &clusterv3.Cluster{Name: b.Key, ConnectTimeout: duration(pool.ConnectTimeout),
		CircuitBreakers: t.c.breakers(), TypedExtensionProtocolOptions: options,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: fromControl()},
		CommonLbConfig:       &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{}},
		// What left the endpoints serves nobody any more.
		IgnoreHealthOnHostRemoval: true}
	limit(cluster, b.Limits)
	if b.Health != nil {
		cluster.HealthChecks = []*corev3.HealthCheck{probe(b)}
	}
	if err := t.endpoints(b.Key, t.Endpoints[b.Key]); err != nil {
		return err
	}
	t.r.Clusters[b.Key] = cluster
	if b.Pool == nil {
		return nil
	}
	if cluster.LoadBalancingPolicy, err = overrideHost(); err != nil {
		return err
	}
	mode := FailClose
	if b.FailOpen {
		mode = FailOpen
	}
	return t.processor(pickerCluster(b.Key), t.Pickers[b.Key].withDefaults(), mode)
}

// processor makes the cluster of an ext_proc server, the same however many replicas
// that has: which there are the endpoints say.
func (t *translation) processor(name string, p Processor, mode FailureMode) error {
	addresses := p.Addresses
	p.Addresses = nil
	c, err := t.c.processorCluster(name, p, mode)
	if err != nil {
		return err
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	c.IgnoreHealthOnHostRemoval = true
	c.EdsClusterConfig, c.LoadAssignment = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: fromControl()}, nil
	t.r.Clusters[name] = c
	return t.endpoints(name, addresses)
}

// probe asks a pool's endpoints how they are.
func probe(b *gateway.Backend) *corev3.HealthCheck {
	h := healthEvery(b.Health.Interval)
	h.Timeout, h.UnhealthyThreshold, h.HealthyThreshold = duration(b.Health.Timeout),
		count(int(b.Health.UnhealthyThreshold)), count(int(b.Health.HealthyThreshold))
	check := &corev3.HealthCheck_HttpHealthCheck{Path: b.Health.Endpoint, Host: b.Name} // the cluster's name is no host
	if b.HTTP2 {
		check.CodecClientType = typev3.CodecClientType_HTTP2
	}
	h.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: check}
	return h
}

// limit puts a policy's limits in the place of those that let held requests pass.
func limit(c *clusterv3.Cluster, l *gateway.Limits) {
	if l == nil {
		return
	}
	at := c.CircuitBreakers.Thresholds[0]
	for _, x := range []struct {
		most *int
		to   **wrapperspb.UInt32Value
	}{{l.Connections, &at.MaxConnections}, {l.Pending, &at.MaxPendingRequests}, {l.Requests, &at.MaxRequests},
		{l.Retries, &at.MaxRetries}} {
		if x.most != nil {
			*x.to = count(*x.most)
		}
	}
	if l.Budget != nil {
		at.RetryBudget = &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
			BudgetPercent: &typev3.Percent{Value: *l.Budget}}
		if l.Least != nil {
			at.RetryBudget.MinRetryConcurrency = count(*l.Least)
		}
	}
	if l.Connect != nil {
		c.ConnectTimeout = duration(time.Duration(*l.Connect))
	}
	if l.Outlier != nil {
		c.OutlierDetection = outlier(l.Outlier)
	}
}

// outlier has Envoy enforce what is given: of gateway errors and of single local
// failures it would only take note by itself.
func outlier(o *gateway.Outlier) *clusterv3.OutlierDetection {
	out := &clusterv3.OutlierDetection{SplitExternalLocalOriginErrors: o.Split}
	for _, x := range []struct {
		value *int
		to    **wrapperspb.UInt32Value
		act   **wrapperspb.UInt32Value
	}{{o.Consecutive5xx, &out.Consecutive_5Xx, &out.EnforcingConsecutive_5Xx},
		{o.Gateway, &out.ConsecutiveGatewayFailure, &out.EnforcingConsecutiveGatewayFailure},
		{o.LocalOrigin, &out.ConsecutiveLocalOriginFailure, &out.EnforcingConsecutiveLocalOriginFailure},
		{o.MaxPercent, &out.MaxEjectionPercent, nil},
		{o.SuccessRate, &out.EnforcingSuccessRate, nil}, {o.SuccessHosts, &out.SuccessRateMinimumHosts, nil},
		{o.SuccessVolume, &out.SuccessRateRequestVolume, nil},
		{o.FailurePercent, &out.FailurePercentageThreshold, &out.EnforcingFailurePercentage}} {
		if x.value == nil {
			continue
		}
		*x.to = count(*x.value)
		if x.act != nil && *x.value > 0 {
			*x.act = count(100)
		}
	}
	if o.Interval != nil {
		out.Interval = duration(time.Duration(*o.Interval))
	}
	if o.Base != nil {
		out.BaseEjectionTime = duration(time.Duration(*o.Base))
	}
	if o.AlwaysEjectOneHost {
		out.AlwaysEjectOneHost = wrapperspb.Bool(true)
	}
	return out
}

func (t *translation) endpoints(cluster string, addresses []string) error {
	load, err := assignment(cluster, addresses)
	if err == nil {
		t.r.Endpoints[cluster] = load
	}
	return err
}

func (t *translation) port(g *gateway.Served, p *gateway.Port) error {
	at := t.Listen(g, p.Number)
	if at == "" {
		return nil
	}
	addr, err := address(at)
	if err != nil {
		return err
	}
	l := &listenerv3.Listener{Name: fmt.Sprintf("%s/%s/%d", g.Namespace, g.Name, p.Number), Address: addr,
		PerConnectionBufferLimitBytes: count(t.buffer(p))}
	t.r.Listeners[l.Name] = l
	if p.Table != nil {
		chain, err := t.chain(g, p.Table, at)
		l.FilterChains = []*listenerv3.FilterChain{chain}
		return err
	}
	inspector, err := pack(&inspectorv3.TlsInspector{})
	if err != nil {
		return err
	}
	l.ListenerFilters = []*listenerv3.ListenerFilter{
		{Name: "envoy.filters.listener.tls_inspector",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: inspector}}}
	for _, s := range p.Secure {
		chain, err := t.chain(g, s.Table, at)
		if err != nil {
			return err
		}
		if chain.TransportSocket, err = t.serveTLS(g, s); err != nil {
			return err
		}
		chain.Name = s.Table.Name
		if s.Hostname != "" {
			chain.FilterChainMatch = &listenerv3.FilterChainMatch{ServerNames: []string{s.Hostname}}
		}
		l.FilterChains = append(l.FilterChains, chain)
	}
	return nil
}

// buffer is what a port's connections may hold: whole bodies, where a picker is to
// see them so. Beyond it Envoy answers 413 itself.
func (t *translation) buffer(p *gateway.Port) int {
	tables := []*gateway.Table{p.Table}
	for _, s := range p.Secure {
		tables = append(tables, s.Table)
	}
	for _, table := range tables {
		if table == nil {
			continue
		}
		for _, h := range table.Hosts {
			if slices.ContainsFunc(h.Routes,
				func(r *gateway.Route) bool { return r.Asking != nil && r.Asking.Request == gateway.BodyBuffered }) {
				return max(connectionBufferBytes, t.c.Limits.BodyBytes)
			}
		}
	}
	return connectionBufferBytes
}

// chain is the filters of a table's listener. A body-based router sees every
// request, and no answer. Pickers are asked where a route says so, each route its
// own pool's.
func (t *translation) chain(g *gateway.Served, table *gateway.Table, at string) (*listenerv3.FilterChain, error) {
	var filters []*hcmv3.HttpFilter
	add := func(name string, filter proto.Message, off bool) error {
		config, err := pack(filter)
		filters = append(filters,
			&hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: config},
				Disabled: off})
		return err
	}
	if g.Router != nil {
		if keys := g.Keys(); keys != nil {
			if err := add(keysFilter, keyFilter(keys), false); err != nil {
				return nil, err
			}
		}
		p := t.Routers[g.Router.Key]
		filter := externalProcessor(g.Router.Key, p.withDefaults(), FailClose)
		filter.ProcessingMode.ResponseHeaderMode,
			filter.ProcessingMode.ResponseTrailerMode = extprocv3.ProcessingMode_SKIP, extprocv3.ProcessingMode_SKIP
		filter.ProcessingMode.ResponseBodyMode = extprocv3.ProcessingMode_NONE
		if err := add(bodyRouterFilter, filter, false); err != nil {
			return nil, err
		}
	}
	if g.Router == nil {
		if err := add(keysFilter, &keysv3.ApiKeyAuth{}, true); err != nil {
			return nil, err
		}
	}
	pickers := map[string]time.Duration{pickerFilter: 0}
	for _, h := range table.Hosts {
		for _, r := range h.Routes {
			if r.Asking != nil {
				pickers[askingFilter(r)] = r.Asking.Timeout
			}
		}
	}
	for _, name := range names(pickers) {
		filter := externalProcessor(unusable, Processor{MessageTimeout: pickers[name]}.withDefaults(), FailClose)
		if g.Router != nil {
			// Which filters are off is settled by the first route that matches, which
			// is not yet the one that the body leads to. So they are on, and see nothing.
			filter.ProcessingMode = unseen()
		}
		if err := add(name, filter, g.Router == nil); err != nil {
			return nil, err
		}
	}
	if err := add("envoy.filters.http.router", routerFilter(), false); err != nil {
		return nil, err
	}
	m, err := t.c.manager(filters)
	if err != nil {
		return nil, err
	}
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{
		Rds: &hcmv3.Rds{ConfigSource: fromControl(), RouteConfigName: table.Name}}
	config, err := pack(m)
	if err != nil {
		return nil, err
	}
	routes, err := t.table(table, at)
	if err != nil {
		return nil, err
	}
	t.r.Routes[table.Name] = routes
	return &listenerv3.FilterChain{
		Filters: []*listenerv3.Filter{
			{Name: "envoy.filters.network.http_connection_manager",
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config}}}}, nil
}

func (t *translation) serveTLS(g *gateway.Served, s *gateway.Secure) (*corev3.TransportSocket, error) {
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
			return nil, err
		}
		add(cert, key)
	}
	config, err := pack(&tlsv3.DownstreamTlsContext{CommonTlsContext: common})
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config}}, nil
}

// table is a table's routes in Envoy's words.
func (t *translation) table(table *gateway.Table, at string) (*routev3.RouteConfiguration, error) {
	c := &routev3.RouteConfiguration{Name: table.Name, IgnorePortInHostMatching: true}
	for _, h := range table.Hosts {
		host := &routev3.VirtualHost{Name: orAll(h.Domain), Domains: []string{orAll(h.Domain)},
			IncludeRequestAttemptCount: true}
		for _, r := range h.Routes {
			routes, err := t.route(r, at)
			if err != nil {
				return nil, err
			}
			host.Routes = append(host.Routes, routes...)
		}
		c.VirtualHosts = append(c.VirtualHosts, host)
	}
	return c, nil
}

func orAll(domain string) string {
	if domain == "" {
		return "*"
	}
	return domain
}

// names are a map's keys, sorted.
func names[T any](m map[string]T) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
