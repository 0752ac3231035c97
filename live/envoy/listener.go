package envoy

import (
	rulesv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
)

// The names of the filters in a chain.
const (
	bodyRouterFilter = "envoy.filters.http.ext_proc.body_router"
	pickerFilter     = "envoy.filters.http.ext_proc"
	keysFilter       = "envoy.filters.http.api_key_auth"
	rateLimitFilter  = "envoy.filters.http.local_ratelimit"
)

// listener returns a listener without its chains. If one of the ways to ask a picker needs buffered bodies, the
// listener buffers whole bodies, and Envoy answers larger ones with 413 itself.
func (w *writer) listener(name, at string, asked ...gateway.Asking) *listenerv3.Listener {
	buffer := proxy.BufferBytes
	for _, a := range asked {
		if a.Request == gateway.BodyBuffered {
			buffer = w.limits.WholeBytes()
		}
	}
	return &listenerv3.Listener{Name: name, Address: w.address(at), PerConnectionBufferLimitBytes: count(buffer)}
}

// filter returns one HTTP filter. A filter that is off acts only for routes that switch it on.
func (w *writer) filter(name string, m proto.Message, off bool) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: w.pack(m)},
		Disabled: off}
}

// chain returns the filters of a connection, with the router as the last one. routes sets the source of the routes.
func (w *writer) chain(filters []*hcmv3.HttpFilter, routes func(*hcmv3.HttpConnectionManager)) *listenerv3.FilterChain {
	filters = append(filters,
		w.filter("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true}, false))
	guard := w.extension("envoy.http.early_header_mutation.header_mutation", dropInternal())
	manager := &hcmv3.HttpConnectionManager{
		CodecType:            hcmv3.HttpConnectionManager_AUTO, // HTTP/1.1, and HTTP/2 by its preface
		StatPrefix:           listenerName,
		HttpFilters:          filters,
		HttpProtocolOptions:  http1Options(),
		Http2ProtocolOptions: http2Options(),
		StreamIdleTimeout:    duration(w.limits.IdleTimeout()),
		// Envoy's default is no timeout, so a client could send one byte a second for ever.
		RequestHeadersTimeout: duration(proxy.HeadersTimeout),
		RequestTimeout:        duration(w.limits.RequestTimeout()),
		AccessLog:             w.accessLogs(),
		UseRemoteAddress:      wrapperspb.Bool(true),
		NormalizePath:         wrapperspb.Bool(true),
		MergeSlashes:          true,
		// One id follows a request through every record: the client's, unchanged, if it sent one.
		PreserveExternalRequestId:    true,
		AlwaysSetRequestIdInResponse: true,
		RequestIdExtension: &hcmv3.RequestIDExtension{
			TypedConfig: w.pack(&uuidv3.UuidRequestIdConfig{PackTraceReason: wrapperspb.Bool(false)})},
		// The model server's own Server header is information for the user.
		ServerHeaderTransformation:    hcmv3.HttpConnectionManager_PASS_THROUGH,
		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{guard},
	}
	routes(manager)
	return &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
		Name:       "envoy.filters.network.http_connection_manager",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: w.pack(manager)}}}}
}

// dropInternal removes headers that only the picker may set from clients' requests. Otherwise a client could choose its
// endpoint or its prefill server while the picker is gone (FailOpen) or bypassed.
func dropInternal() proto.Message {
	m := &earlyv3.HeaderMutation{}
	for _, name := range picker.InternalHeaders {
		m.Mutations = append(m.Mutations, &rulesv3.HeaderMutation{Action: &rulesv3.HeaderMutation_Remove{Remove: name}})
	}
	return m
}

// externalProcessor returns the filter that sends messages to an ext_proc server.
func externalProcessor(cluster string, a gateway.Asking) *extprocv3.ExternalProcessor {
	return &extprocv3.ExternalProcessor{
		GrpcService:      grpcService(cluster),
		FailureModeAllow: a.FailOpen,
		ProcessingMode:   shown(a),
		MessageTimeout:   duration(a.Timeout),
		// By default, Envoy answers 500, and a client cannot distinguish a missing picker from a bug.
		StatusOnError:   &typev3.HttpStatus{Code: typev3.StatusCode(proxy.StatusLost)},
		MetadataOptions: pickerMetadata(),
		// The picker may set the limits that a client asks for (x-envoy-max-retries …).
		MutationRules: &rulesv3.HeaderMutationRules{AllowEnvoy: wrapperspb.Bool(true)},
	}
}

// askingOverride makes a route ask its own pool's picker.
func askingOverride(cluster string, a gateway.Asking, metadata *extprocv3.MetadataOptions) *extprocv3.ExtProcPerRoute {
	return &extprocv3.ExtProcPerRoute{Override: &extprocv3.ExtProcPerRoute_Overrides{
		Overrides: &extprocv3.ExtProcOverrides{
			ProcessingMode:   shown(a),
			GrpcService:      grpcService(cluster),
			MetadataOptions:  metadata,
			FailureModeAllow: wrapperspb.Bool(a.FailOpen),
		},
	}}
}

func grpcService(cluster string) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster},
	}}
}

// shown returns the parts of requests and responses that Envoy sends to the service. Envoy refuses full-duplex bodies
// without trailers.
func shown(a gateway.Asking) *extprocv3.ProcessingMode {
	mode := &extprocv3.ProcessingMode{
		RequestHeaderMode:   extprocv3.ProcessingMode_SEND,
		ResponseHeaderMode:  extprocv3.ProcessingMode_SEND,
		RequestTrailerMode:  extprocv3.ProcessingMode_SKIP,
		ResponseTrailerMode: extprocv3.ProcessingMode_SKIP,
		RequestBodyMode:     bodyMode(a.Request),
		ResponseBodyMode:    bodyMode(a.Responses()),
	}
	if a.Request == gateway.BodyFullDuplex {
		mode.RequestTrailerMode = extprocv3.ProcessingMode_SEND
	}
	if a.Responses() == gateway.BodyFullDuplex {
		mode.ResponseTrailerMode = extprocv3.ProcessingMode_SEND
	}
	return mode
}

// bodyMode returns Envoy's value for a gateway.Body, which has Envoy's names.
func bodyMode(b gateway.Body) extprocv3.ProcessingMode_BodySendMode {
	return extprocv3.ProcessingMode_BodySendMode(extprocv3.ProcessingMode_BodySendMode_value[string(b)])
}

// unseen sends no part of a message.
func unseen() *extprocv3.ProcessingMode {
	return &extprocv3.ProcessingMode{RequestHeaderMode: extprocv3.ProcessingMode_SKIP,
		ResponseHeaderMode: extprocv3.ProcessingMode_SKIP,
		RequestTrailerMode: extprocv3.ProcessingMode_SKIP, ResponseTrailerMode: extprocv3.ProcessingMode_SKIP}
}

// pickerMetadata returns the protocol's metadata beside headers: Envoy sends the subset of endpoints to choose from,
// receives the choice, and sends the endpoint that really served with the response.
func pickerMetadata() *extprocv3.MetadataOptions {
	return &extprocv3.MetadataOptions{
		ForwardingNamespaces: &extprocv3.MetadataOptions_MetadataNamespaces{
			Untyped: []string{picker.NamespaceLB, picker.NamespaceSubset}},
		ReceivingNamespaces: &extprocv3.MetadataOptions_MetadataNamespaces{Untyped: []string{picker.NamespaceLB}},
	}
}
