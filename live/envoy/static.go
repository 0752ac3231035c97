package envoy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
)

// static returns the one listener of a bootstrap file: one virtual host with the routes in their order. The chain asks
// the picker of the first pool that has one. The routes of other pools ask their own pickers instead, or none.
func (w *writer) static(c Config) *listenerv3.Listener {
	var asked []gateway.Asking
	var first *Pool
	for i := range c.Pools {
		if p := &c.Pools[i]; p.Routing != RoundRobin {
			asked = append(asked, p.Picker.Asking)
			first = cmp.Or(first, p)
		}
	}
	var filters []*hcmv3.HttpFilter
	if c.BodyRouter != nil {
		filters = append(filters,
			w.filter(bodyRouterFilter, externalProcessor(bodyRouterName, c.BodyRouter.Asking), false))
	}
	if first != nil {
		filters = append(filters,
			w.filter(pickerFilter, externalProcessor(PickerCluster(first.Name), first.Picker.Asking), false))
	}
	host := &routev3.VirtualHost{Name: listenerName, Domains: []string{"*"}, IncludeRequestAttemptCount: true}
	for i, r := range c.Routes {
		out := &routev3.Route{Name: fmt.Sprintf("%d-%s", i, r.Pool),
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}}
		for _, key := range slices.Sorted(maps.Keys(r.Headers)) {
			out.Match.Headers = append(out.Match.Headers, headerIs(key, exactly(r.Headers[key])))
		}
		p := &c.Pools[slices.IndexFunc(c.Pools, func(p Pool) bool { return p.Name == r.Pool })]
		w.action(out).ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: PoolCluster(p.Name)}
		if p.Retry != nil {
			w.retries(out, p.Retry, p.Routing != OriginalDst)
		}
		switch {
		case first == nil || p == first: // the chain's filter asks, if there is one
		case p.Routing == RoundRobin:
			w.overrides(out, pickerFilter,
				&extprocv3.ExtProcPerRoute{Override: &extprocv3.ExtProcPerRoute_Disabled{Disabled: true}})
		default:
			w.overrides(out, pickerFilter, askingOverride(PickerCluster(p.Name), p.Picker.Asking, nil))
		}
		host.Routes = append(host.Routes, out)
	}
	l := w.listener(listenerName, c.Listen, asked...)
	l.FilterChains = []*listenerv3.FilterChain{w.chain(filters, func(m *hcmv3.HttpConnectionManager) {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: listenerName, VirtualHosts: []*routev3.VirtualHost{host}}}
	})}
	return l
}

// pool returns the clusters of a pool's model servers and of its picker.
func (w *writer) pool(p Pool) []*clusterv3.Cluster {
	s := servers{name: PoolCluster(p.Name), http2: p.HTTP2, routing: p.Routing, endpoints: p.Endpoints}
	if p.EndpointsFile != "" {
		s.from = fromFile(p.EndpointsFile)
	}
	if p.HealthPath != "" {
		s.health = &objects.Health{Endpoint: p.HealthPath, Interval: proxy.HealthInterval,
			Timeout: time.Second, UnhealthyThreshold: 1, HealthyThreshold: 1}
	}
	if p.Routing == RoundRobin {
		return []*clusterv3.Cluster{w.servers(s)}
	}
	return []*clusterv3.Cluster{w.servers(s), w.processors(PickerCluster(p.Name), p.Picker, nil)}
}
