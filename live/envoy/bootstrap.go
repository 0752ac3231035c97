package envoy

import (
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// Names in statistics and logs.
const (
	listenerName   = "gateway"
	bodyRouterName = "body-router"
	controlName    = "control"
)

// PoolCluster returns the name of the cluster of a pool's model servers in Envoy's statistics
// (cluster.<name>.upstream_rq_active and so on).
func PoolCluster(pool string) string { return "pool-" + pool }

// PickerCluster returns the name of a pool's endpoint picker in Envoy's statistics.
func PickerCluster(pool string) string { return "picker-" + pool }

// Bootstrap returns the whole configuration as Envoy's own typed messages. It validates c with its defaults first.
func (c Config) Bootstrap() (*bootstrapv3.Bootstrap, error) {
	c = c.WithDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	w := &writer{limits: c.Limits, accessLog: c.AccessLog}
	b := &bootstrapv3.Bootstrap{
		// Envoy handles endpoints from a file as if a control plane delivered them, and that needs a node's id and
		// cluster.
		Node:            &corev3.Node{Id: "windtunnel", Cluster: "windtunnel"},
		Admin:           &bootstrapv3.Admin{Address: w.address(c.Admin)},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{},
	}
	if c.Control != "" {
		b.StaticResources.Clusters = []*clusterv3.Cluster{
			w.processors(controlName, Processor{Addresses: []string{c.Control}}, nil)}
		b.DynamicResources = &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: &corev3.ApiConfigSource{ApiType: corev3.ApiConfigSource_DELTA_GRPC,
				TransportApiVersion:       corev3.ApiVersion_V3,
				SetNodeOnFirstMessageOnly: true, GrpcServices: []*corev3.GrpcService{grpcService(controlName)}},
			LdsConfig: fromControl(), CdsConfig: fromControl(),
		}
	} else {
		b.StaticResources.Listeners = []*listenerv3.Listener{w.static(c)}
		for _, p := range c.Pools {
			b.StaticResources.Clusters = append(b.StaticResources.Clusters, w.pool(p)...)
		}
		if c.BodyRouter != nil {
			b.StaticResources.Clusters = append(b.StaticResources.Clusters,
				w.processors(bodyRouterName, *c.BodyRouter, nil))
		}
	}
	return b, w.check(b)
}
