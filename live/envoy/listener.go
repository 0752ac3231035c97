package envoy

import (
	"maps"
	"slices"

	rulesv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/windtunnel/windtunnel/core/picker"
)

// connectionBufferBytes is Envoy's own default for what it buffers of one
// connection, written out because Limits.BodyBytes may ask for more.
const connectionBufferBytes = 1 << 20

func (c Config) listener() (*listenerv3.Listener, error) {
	addr, err := address(c.Listen)
	if err != nil {
		return nil, err
	}
	manager, err := c.connectionManager()
	if err != nil {
		return nil, err
	}
	config, err := pack(manager)
	if err != nil {
		return nil, err
	}
	buffer := connectionBufferBytes
	if slices.ContainsFunc(c.Pools, func(p Pool) bool { return p.Picker.Mode == Buffered }) {
		buffer = max(buffer, c.Limits.BodyBytes) // beyond it Envoy answers 413 itself
	}
	return &listenerv3.Listener{
		Name:                          listenerName,
		Address:                       addr,
		PerConnectionBufferLimitBytes: count(buffer),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config},
		}}}},
	}, nil
}

func (c Config) connectionManager() (*hcmv3.HttpConnectionManager, error) {
	filters, err := c.httpFilters()
	if err != nil {
		return nil, err
	}
	routes, err := c.routes()
	if err != nil {
		return nil, err
	}
	m, err := c.manager(filters)
	if err != nil {
		return nil, err
	}
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes}
	return m, nil
}

// manager is a connection manager without its routes.
func (c Config) manager(filters []*hcmv3.HttpFilter) (*hcmv3.HttpConnectionManager, error) {
	guard, err := extension("envoy.http.early_header_mutation.header_mutation", dropInternal())
	if err != nil {
		return nil, err
	}
	requestID, err := pack(&uuidv3.UuidRequestIdConfig{PackTraceReason: wrapperspb.Bool(false)})
	if err != nil {
		return nil, err
	}
	logs, err := c.accessLogs()
	if err != nil {
		return nil, err
	}
	return &hcmv3.HttpConnectionManager{
		CodecType:            hcmv3.HttpConnectionManager_AUTO, // HTTP/1.1, and HTTP/2 by its preface
		StatPrefix:           listenerName,
		HttpFilters:          filters,
		HttpProtocolOptions:  http1Options(),
		Http2ProtocolOptions: &corev3.Http2ProtocolOptions{MaxConcurrentStreams: count(streamsPerConnection)},
		StreamIdleTimeout:    duration(c.Limits.idleTimeout()),
		// Both are off by default: a client could send a byte a second for ever.
		RequestHeadersTimeout: duration(headersTimeout),
		RequestTimeout:        duration(c.Limits.requestTimeout()),
		AccessLog:             logs,
		UseRemoteAddress:      wrapperspb.Bool(true),
		NormalizePath:         wrapperspb.Bool(true),
		MergeSlashes:          true,
		// One id follows a request through every record: the client's if it
		// sent one, as it was sent.
		PreserveExternalRequestId:    true,
		AlwaysSetRequestIdInResponse: true,
		RequestIdExtension:           &hcmv3.RequestIDExtension{TypedConfig: requestID},
		// What the model server calls itself is part of what a user wants to see.
		ServerHeaderTransformation:    hcmv3.HttpConnectionManager_PASS_THROUGH,
		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{guard},
	}, nil
}

// dropInternal takes out of what clients send what is the picker's alone to say:
// with the picker gone (FailOpen) or bypassed a client would otherwise choose its
// endpoint, or its prefill server.
func dropInternal() proto.Message {
	m := &earlyv3.HeaderMutation{}
	for _, name := range picker.InternalHeaders {
		m.Mutations = append(m.Mutations, &rulesv3.HeaderMutation{Action: &rulesv3.HeaderMutation_Remove{Remove: name}})
	}
	return m
}

func (c Config) httpFilters() ([]*hcmv3.HttpFilter, error) {
	var filters []*hcmv3.HttpFilter
	add := func(name string, m proto.Message) error {
		config, err := pack(m)
		if err != nil {
			return err
		}
		filters = append(filters,
			&hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}})
		return nil
	}
	if c.BodyRouter != nil {
		if err := add(bodyRouterFilter, externalProcessor(bodyRouterName, *c.BodyRouter, FailClose)); err != nil {
			return nil, err
		}
	}
	if first := c.asked(); first != nil {
		if err := add(pickerFilter,
			externalProcessor(PickerCluster(first.Name), first.Picker, first.FailureMode)); err != nil {
			return nil, err
		}
	}
	// The router is always last.
	return filters, add("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true})
}

// asked is the first pool with a picker, which the chain holds, or nil. The routes of
// other pools name their own instead, or none.
func (c Config) asked() *Pool {
	for i := range c.Pools {
		if c.Pools[i].Routing != RoundRobin {
			return &c.Pools[i]
		}
	}
	return nil
}

func extension(name string, m proto.Message) (*corev3.TypedExtensionConfig, error) {
	config, err := pack(m)
	if err != nil {
		return nil, err
	}
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: config}, nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// routes is one virtual host with the routes in their order.
func (c Config) routes() (*routev3.RouteConfiguration, error) {
	host := &routev3.VirtualHost{Name: listenerName, Domains: []string{"*"}, IncludeRequestAttemptCount: true}
	for i, r := range c.Routes {
		route, err := c.route(i, r)
		if err != nil {
			return nil, err
		}
		host.Routes = append(host.Routes, route)
	}
	return &routev3.RouteConfiguration{Name: listenerName, VirtualHosts: []*routev3.VirtualHost{host}}, nil
}
