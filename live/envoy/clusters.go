package envoy

import (
	"net/netip"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	overridev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
)

// servers describes a cluster of model servers.
type servers struct {
	name      string
	host      string // for health checks, "" for the cluster's name
	http2     bool
	routing   Routing
	health    *objects.Health
	limits    *gateway.Limits
	from      *corev3.ConfigSource // source of the endpoints; nil means fixed endpoints
	endpoints []string
}

// servers returns a cluster of model servers.
func (w *writer) servers(s servers) *clusterv3.Cluster {
	c := &clusterv3.Cluster{Name: s.name, ConnectTimeout: duration(proxy.ConnectTimeout),
		CircuitBreakers: w.breakers(), TypedExtensionProtocolOptions: w.httpOptions(s.http2)}
	limit(c, s.limits)
	switch s.routing {
	case OriginalDst:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
		c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		c.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{
			OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{
				UseHttpHeader: true, HttpHeaderName: picker.HeaderDestination}}
		return c
	case OverrideHost:
		c.LoadBalancingPolicy = w.overrideHost(s.limits)
	default: // without a policy it is Envoy's default, round robin
		if s.limits.Balances() != gateway.RoundRobin {
			c.LoadBalancingPolicy = w.balancer(s.limits)
		}
	}
	c.CommonLbConfig = noPanic()
	if h := s.health; h != nil {
		check := &corev3.HealthCheck_HttpHealthCheck{Path: h.Endpoint, Host: s.host}
		if s.http2 {
			check.CodecClientType = typev3.CodecClientType_HTTP2
		}
		probe := healthEvery(h.Interval)
		probe.Timeout, probe.UnhealthyThreshold, probe.HealthyThreshold = duration(h.Timeout),
			count(int(h.UnhealthyThreshold)), count(int(h.HealthyThreshold))
		probe.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: check}
		c.HealthChecks = []*corev3.HealthCheck{probe}
	}
	w.discover(c, s.from, s.endpoints)
	return c
}

// processors returns the cluster of an ext_proc server, with its own addresses or with the endpoints that from
// provides.
func (w *writer) processors(name string, p Processor, from *corev3.ConfigSource) *clusterv3.Cluster {
	if from != nil { // the cluster does not depend on the number of replicas
		p.Addresses = nil
	}
	c := &clusterv3.Cluster{Name: name, ConnectTimeout: duration(proxy.ConnectTimeout),
		CircuitBreakers: w.breakers(), TypedExtensionProtocolOptions: w.httpOptions(true)} // gRPC
	if proxy.Checks(len(p.Addresses), p.FailOpen) {
		// Until a check has noticed that the picker is gone, each request gets a 503.
		probe := healthEvery(proxy.HealthInterval)
		probe.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{
			ServiceName: "envoy.service.ext_proc.v3.ExternalProcessor"}}
		c.HealthChecks, c.CommonLbConfig = []*corev3.HealthCheck{probe}, noPanic()
	}
	if p.TLS {
		c.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: w.pack(&tlsv3.UpstreamTlsContext{
				CommonTlsContext: &tlsv3.CommonTlsContext{AlpnProtocols: []string{"h2"}}})}}
	}
	w.discover(c, from, p.Addresses)
	if slices.ContainsFunc(p.Addresses, isName) {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
	}
	return c
}

func isName(hostport string) bool {
	_, err := netip.ParseAddrPort(hostport)
	return err != nil
}

// discover sets a cluster's endpoints, or the source of its endpoints.
func (w *writer) discover(c *clusterv3.Cluster, from *corev3.ConfigSource, endpoints []string) {
	if from == nil {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		c.LoadAssignment = w.assignment(c.Name, endpoints)
		return
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: from}
	c.IgnoreHealthOnHostRemoval = from.GetAds() != nil // an endpoint that has left serves no requests any more
}

func (w *writer) assignment(name string, addresses []string) *endpointv3.ClusterLoadAssignment {
	var endpoints []*endpointv3.LbEndpoint
	for _, a := range addresses {
		endpoints = append(endpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: w.address(a)},
		}})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: endpoints}}}
}

// noPanic switches off Envoy's panic mode, which would send requests to endpoints known to be down.
func noPanic() *clusterv3.Cluster_CommonLbConfig {
	return &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{}}
}

// overrideHost follows the picker's answer and reports the endpoint that a request really went to (protocol 004,
// version 1.0.0). Without an answer, because the picker is gone or a retry needs another endpoint, it falls back to the
// policy's load balancing.
func (w *writer) overrideHost(l *gateway.Limits) *clusterv3.LoadBalancingPolicy {
	return w.policy("envoy.load_balancing_policies.override_host", &overridev3.OverrideHost{
		OverrideHostSources: []*overridev3.OverrideHost_OverrideHostSource{{Header: picker.HeaderDestination}},
		SelectedHostKey: &metadatav3.MetadataKey{
			Key: picker.NamespaceLB,
			Path: []*metadatav3.MetadataKey_PathSegment{
				{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: picker.KeyServed}}},
		},
		FallbackPolicy: w.balancer(l),
	})
}

func (w *writer) balancer(l *gateway.Limits) *clusterv3.LoadBalancingPolicy {
	switch l.Balances() {
	case gateway.LeastRequest:
		return w.policy("envoy.load_balancing_policies.least_request", &leastrequestv3.LeastRequest{})
	case gateway.Random:
		return w.policy("envoy.load_balancing_policies.random", &randomv3.Random{})
	}
	return w.policy("envoy.load_balancing_policies.round_robin", &roundrobinv3.RoundRobin{})
}

func (w *writer) policy(name string, m proto.Message) *clusterv3.LoadBalancingPolicy {
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{
		{TypedExtensionConfig: w.extension(name, m)}}}
}

// breakers sets limits high enough for accumulated held requests. Beyond the default of 1,024, Envoy answers 503
// "overflow".
func (w *writer) breakers() *clusterv3.CircuitBreakers {
	n := count(w.limits.InFlight)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: n, MaxPendingRequests: n, MaxRequests: n, MaxRetries: n,
	}}}
}

// limit replaces the limits for held requests by a policy's limits.
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

// outlier makes Envoy enforce the given limits. By default, Envoy only counts gateway errors and single local failures.
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

// http1Options let trailers through, which Envoy drops in HTTP/1.1 by default. Clients that accept trailers get in them
// the values that are known only at a stream's end.
func http1Options() *corev3.Http1ProtocolOptions {
	return &corev3.Http1ProtocolOptions{EnableTrailers: true}
}

func http2Options() *corev3.Http2ProtocolOptions {
	return &corev3.Http2ProtocolOptions{MaxConcurrentStreams: count(proxy.StreamsPerConnection)}
}

func (w *writer) httpOptions(http2 bool) map[string]*anypb.Any {
	explicit := &httpv3.HttpProtocolOptions_ExplicitHttpConfig{}
	if http2 {
		explicit.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: http2Options()}
	} else {
		explicit.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
			HttpProtocolOptions: http1Options()}
	}
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": w.pack(
		&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: explicit}})}
}

// healthEvery checks at a constant rate, with or without traffic. Envoy's default for a cluster without traffic is once
// a minute. A server that is gone refuses connections at once; one that answers late is busy, and alive.
func healthEvery(interval time.Duration) *corev3.HealthCheck {
	every := duration(interval)
	return &corev3.HealthCheck{
		Timeout:            duration(max(interval, 5*time.Second)),
		Interval:           every,
		NoTrafficInterval:  every,
		UnhealthyThreshold: wrapperspb.UInt32(1),
		HealthyThreshold:   wrapperspb.UInt32(1),
	}
}
