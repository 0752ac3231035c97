package envoy

import (
	"net/netip"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	overridev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The picker says where a request goes in this header and under this key of
// the metadata below it (endpoint picker protocol, GAIE proposal 004).
const (
	DestinationHeader = "x-gateway-destination-endpoint"
	servedKey         = "x-gateway-destination-endpoint-served"
	lbNamespace       = "envoy.lb"
	subsetNamespace   = "envoy.lb.subset_hint"
)

// poolClusters are the pool's model servers and its picker.
func (c Config) poolClusters(p Pool) ([]*clusterv3.Cluster, error) {
	servers, err := c.serverCluster(p)
	if err != nil {
		return nil, err
	}
	if p.Routing == RoundRobin {
		return []*clusterv3.Cluster{servers}, nil
	}
	picker, err := c.processorCluster(PickerCluster(p.Name), p.Picker, p.FailureMode)
	if err != nil {
		return nil, err
	}
	return []*clusterv3.Cluster{servers, picker}, nil
}

func (c Config) serverCluster(p Pool) (*clusterv3.Cluster, error) {
	name := PoolCluster(p.Name)
	options, err := httpOptions(p.Protocol)
	if err != nil {
		return nil, err
	}
	cluster := &clusterv3.Cluster{
		Name:                          name,
		ConnectTimeout:                duration(p.ConnectTimeout),
		CircuitBreakers:               c.breakers(),
		TypedExtensionProtocolOptions: options,
	}
	if p.Routing == OriginalDst {
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
		cluster.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		cluster.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{
			OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{
				UseHttpHeader:  true,
				HttpHeaderName: DestinationHeader,
			}}
		return cluster, nil
	}
	if p.Routing == OverrideHost { // else it is Envoy's default, round robin
		if cluster.LoadBalancingPolicy, err = overrideHost(); err != nil {
			return nil, err
		}
	}
	// Envoy's panic mode would send requests to endpoints known to be down.
	cluster.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{}}
	if p.HealthPath != "" {
		cluster.HealthChecks = []*corev3.HealthCheck{c.serverHealth(p)}
	}
	if p.EndpointsFile != "" {
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		cluster.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion: corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{
				PathConfigSource: &corev3.PathConfigSource{Path: p.EndpointsFile},
			},
		}}
		return cluster, nil
	}
	cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	cluster.LoadAssignment, err = assignment(name, p.Endpoints)
	return cluster, err
}

// overrideHost obeys the picker's answer, tells where the request really went
// (protocol 004, version 1.0.0), and falls back to round robin where there is
// no answer: the picker is gone, or a retry needs one endpoint more.
func overrideHost() (*clusterv3.LoadBalancingPolicy, error) {
	fallback, err := policy("envoy.load_balancing_policies.round_robin", &roundrobinv3.RoundRobin{})
	if err != nil {
		return nil, err
	}
	return policy("envoy.load_balancing_policies.override_host", &overridev3.OverrideHost{
		OverrideHostSources: []*overridev3.OverrideHost_OverrideHostSource{{Header: DestinationHeader}},
		SelectedHostKey: &metadatav3.MetadataKey{
			Key: lbNamespace,
			Path: []*metadatav3.MetadataKey_PathSegment{
				{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: servedKey}}},
		},
		FallbackPolicy: fallback,
	})
}

func policy(name string, m proto.Message) (*clusterv3.LoadBalancingPolicy, error) {
	config, err := pack(m)
	if err != nil {
		return nil, err
	}
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: name, TypedConfig: config},
	}}}, nil
}

// processorCluster is how an ext_proc server is reached.
func (c Config) processorCluster(name string, p Processor, mode FailureMode) (*clusterv3.Cluster, error) {
	options, err := httpOptions(HTTP2) // gRPC
	if err != nil {
		return nil, err
	}
	endpoints, err := assignment(name, p.Addresses)
	if err != nil {
		return nil, err
	}
	cluster := &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                duration(5 * time.Second),
		LbPolicy:                      clusterv3.Cluster_ROUND_ROBIN,
		LoadAssignment:                endpoints,
		CircuitBreakers:               c.breakers(),
		TypedExtensionProtocolOptions: options,
	}
	if slices.ContainsFunc(p.Addresses, isName) {
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
	}
	if mode == FailOpen || len(p.Addresses) > 1 {
		cluster.HealthChecks = []*corev3.HealthCheck{processorHealth(p)}
		cluster.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{}}
	}
	if p.TLS != nil {
		cluster.TransportSocket, err = p.TLS.socket()
	}
	return cluster, err
}

func isName(hostport string) bool {
	_, err := netip.ParseAddrPort(hostport)
	return err != nil
}

// breakers lets through what held requests pile up; the default of 1,024
// answers 503 "overflow" beyond.
func (c Config) breakers() *clusterv3.CircuitBreakers {
	n := count(c.Limits.InFlight)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: n, MaxPendingRequests: n, MaxRequests: n, MaxRetries: n,
	}}}
}

// streamsPerConnection is how many requests share an HTTP/2 connection, on
// every side. More of them asks for trouble (measured): until a new connection
// to a server has said how many it allows, Envoy counts on its own setting, and
// with the default of 1,024 a burst met Go's limit of 250 and the rest were
// refused (503); and a client's connection with 10,000 held requests on it was
// closed as a flood when all of them were answered at once. Every peer must be
// expected to allow 100 (RFC 9113, 6.5.2), and gateways usually do.
const streamsPerConnection = 100

// http1Options let trailers through, which Envoy drops in HTTP/1.1 by default: what is
// known only at a stream's end comes so, to clients that say that they read it.
func http1Options() *corev3.Http1ProtocolOptions {
	return &corev3.Http1ProtocolOptions{EnableTrailers: true}
}

func httpOptions(p Protocol) (map[string]*anypb.Any, error) {
	explicit := &httpv3.HttpProtocolOptions_ExplicitHttpConfig{}
	if p == HTTP2 {
		explicit.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{MaxConcurrentStreams: count(streamsPerConnection)}}
	} else {
		explicit.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
			HttpProtocolOptions: http1Options()}
	}
	options, err := pack(&httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: explicit},
	})
	if err != nil {
		return nil, err
	}
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}, nil
}

func assignment(name string, addresses []string) (*endpointv3.ClusterLoadAssignment, error) {
	var endpoints []*endpointv3.LbEndpoint
	for _, a := range addresses {
		addr, err := address(a)
		if err != nil {
			return nil, err
		}
		endpoints = append(endpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: addr},
		}})
	}
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: name,
		Endpoints:   []*endpointv3.LocalityLbEndpoints{{LbEndpoints: endpoints}},
	}, nil
}

// socket is TLS with HTTP/2 negotiated.
func (t *TLS) socket() (*corev3.TransportSocket, error) {
	common := &tlsv3.CommonTlsContext{AlpnProtocols: []string{"h2"}}
	if t.CAFile != "" {
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{
				TrustedCa: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: t.CAFile}},
			}}
	}
	config, err := pack(&tlsv3.UpstreamTlsContext{
		CommonTlsContext:     common,
		Sni:                  t.ServerName,
		AutoSniSanValidation: t.CAFile != "" && t.ServerName != "",
	})
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config},
	}, nil
}

// processorHealth watches closely: until it has noticed that the picker is
// gone, each request costs its client a 503.
func processorHealth(p Processor) *corev3.HealthCheck {
	h := healthEvery(p.HealthInterval)
	h.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{
		GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{ServiceName: p.HealthService},
	}
	return h
}

func (c Config) serverHealth(p Pool) *corev3.HealthCheck {
	h := healthEvery(p.Picker.HealthInterval)
	h.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{
		HttpHealthCheck: &corev3.HealthCheck_HttpHealthCheck{Path: p.HealthPath},
	}
	if p.Protocol == HTTP2 {
		h.GetHttpHealthCheck().CodecClientType = typev3.CodecClientType_HTTP2
	}
	return h
}

// healthEvery checks at one rate whatever the traffic: Envoy's default for a
// cluster without traffic is once a minute.
func healthEvery(interval time.Duration) *corev3.HealthCheck {
	every := duration(interval)
	return &corev3.HealthCheck{
		Timeout:            duration(max(interval, time.Second)),
		Interval:           every,
		NoTrafficInterval:  every,
		UnhealthyThreshold: wrapperspb.UInt32(1),
		HealthyThreshold:   wrapperspb.UInt32(1),
	}
}
