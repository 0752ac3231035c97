package envoy

import (
	"fmt"
	"net"
	"strconv"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The names that statistics and logs go by.
const (
	listenerName   = "gateway"
	bodyRouterName = "body-router"
	controlName    = "control"
)

// PoolCluster is the name of a pool's model servers in Envoy's statistics
// (cluster.<name>.upstream_rq_active and so on).
func PoolCluster(pool string) string { return "pool-" + pool }

// PickerCluster is the name of a pool's endpoint picker there.
func PickerCluster(pool string) string { return "picker-" + pool }

// Bootstrap is the whole configuration as Envoy's own typed messages. c gets
// its defaults and is validated first.
func (c Config) Bootstrap() (*bootstrapv3.Bootstrap, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	admin, err := address(c.Admin)
	if err != nil {
		return nil, err
	}
	if c.Control != "" {
		return c.controlled(admin)
	}
	listener, err := c.listener()
	if err != nil {
		return nil, err
	}
	var clusters []*clusterv3.Cluster
	for _, p := range c.Pools {
		pair, err := c.poolClusters(p)
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, pair...)
	}
	if c.BodyRouter != nil {
		router, err := c.processorCluster(bodyRouterName, *c.BodyRouter, FailClose)
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, router)
	}
	b := &bootstrapv3.Bootstrap{
		// Endpoints read from a file are delivered as if by a control plane,
		// and those need to know whom they serve.
		Node:  &corev3.Node{Id: "windtunnel", Cluster: "windtunnel"},
		Admin: &bootstrapv3.Admin{Address: admin},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Listeners: []*listenerv3.Listener{listener},
			Clusters:  clusters,
		},
	}
	if err := b.ValidateAll(); err != nil {
		return nil, fail(BadConfig, err, "the configuration breaks a rule of Envoy's: %v", err)
	}
	return b, nil
}

// controlled asks a control plane for everything but the way to it.
func (c Config) controlled(admin *corev3.Address) (*bootstrapv3.Bootstrap, error) {
	cluster, err := c.processorCluster(controlName, Processor{Addresses: []string{c.Control}}, FailClose)
	if err != nil {
		return nil, err
	}
	b := &bootstrapv3.Bootstrap{
		Node:            &corev3.Node{Id: "windtunnel", Cluster: "windtunnel"},
		Admin:           &bootstrapv3.Admin{Address: admin},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{cluster}},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: &corev3.ApiConfigSource{ApiType: corev3.ApiConfigSource_DELTA_GRPC,
				TransportApiVersion:       corev3.ApiVersion_V3,
				SetNodeOnFirstMessageOnly: true, GrpcServices: []*corev3.GrpcService{grpcService(controlName)}},
			LdsConfig: fromControl(), CdsConfig: fromControl(),
		},
	}
	if err := b.ValidateAll(); err != nil {
		return nil, fail(BadConfig, err, "the configuration breaks a rule of Envoy's: %v", err)
	}
	return b, nil
}

// fromControl is where a resource comes from that the control plane gives.
func fromControl() *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

func address(hostport string) (*corev3.Address, error) {
	host, port, err := splitHostPort(hostport)
	if err != nil {
		return nil, fail(BadConfig, err, "%v", err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}, nil
}

func splitHostPort(hostport string) (string, uint32, error) {
	host, p, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", hostport)
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("%q is not host:port with a port of 0 to 65535", hostport)
	}
	return host, uint32(port), nil
}

// pack puts a message into the envelope that extensions come in. It cannot
// fail for the messages made here.
func pack(m proto.Message) (*anypb.Any, error) {
	a, err := anypb.New(m)
	if err != nil {
		return nil, fail(BadConfig, err, "%T cannot be written: %v", m, err)
	}
	return a, nil
}

func duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
func count(n int) *wrapperspb.UInt32Value           { return wrapperspb.UInt32(uint32(n)) }
