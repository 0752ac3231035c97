package envoy

import (
	rulesv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The names of the two ext_proc filters in the chain.
const (
	bodyRouterFilter = "envoy.filters.http.ext_proc.body_router"
	pickerFilter     = "envoy.filters.http.ext_proc"
)

// externalProcessor is the filter that shows messages to an ext_proc server.
func externalProcessor(cluster string, p Processor, mode FailureMode) *extprocv3.ExternalProcessor {
	return &extprocv3.ExternalProcessor{
		GrpcService:      grpcService(cluster),
		FailureModeAllow: mode == FailOpen,
		ProcessingMode:   p.processing(),
		MessageTimeout:   duration(p.MessageTimeout),
		// Without it a client cannot tell a missing picker from a bug: 500.
		StatusOnError:   &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
		MetadataOptions: pickerMetadata(),
		// The limits that a client asks for are the picker's to set (x-envoy-max-retries …).
		MutationRules: &rulesv3.HeaderMutationRules{AllowEnvoy: wrapperspb.Bool(true)},
	}
}

// pickerOverride makes a route ask its own pool's picker.
func pickerOverride(p Pool) *extprocv3.ExtProcPerRoute {
	return &extprocv3.ExtProcPerRoute{Override: &extprocv3.ExtProcPerRoute_Overrides{
		Overrides: &extprocv3.ExtProcOverrides{
			ProcessingMode:   p.Picker.processing(),
			GrpcService:      grpcService(PickerCluster(p.Name)),
			FailureModeAllow: wrapperspb.Bool(p.FailureMode == FailOpen),
		},
	}}
}

func grpcService(cluster string) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster},
	}}
}

// processing is what the service is shown of requests and responses.
func (p *Processor) processing() *extprocv3.ProcessingMode {
	mode := &extprocv3.ProcessingMode{
		RequestHeaderMode:   extprocv3.ProcessingMode_SEND,
		ResponseHeaderMode:  extprocv3.ProcessingMode_SEND,
		RequestTrailerMode:  extprocv3.ProcessingMode_SKIP,
		ResponseTrailerMode: extprocv3.ProcessingMode_SKIP,
		RequestBodyMode:     p.Mode.bodies(),
	}
	responses := p.Responses
	if responses == "" {
		if responses = p.Mode; responses == Buffered {
			responses = HeadersOnly
		}
	}
	mode.ResponseBodyMode = responses.bodies()
	// Full duplex is refused without trailers.
	if mode.RequestBodyMode == extprocv3.ProcessingMode_FULL_DUPLEX_STREAMED {
		mode.RequestTrailerMode = extprocv3.ProcessingMode_SEND
	}
	if mode.ResponseBodyMode == extprocv3.ProcessingMode_FULL_DUPLEX_STREAMED {
		mode.ResponseTrailerMode = extprocv3.ProcessingMode_SEND
	}
	return mode
}

// unseen shows nothing of a message.
func unseen() *extprocv3.ProcessingMode {
	return &extprocv3.ProcessingMode{RequestHeaderMode: extprocv3.ProcessingMode_SKIP,
		ResponseHeaderMode: extprocv3.ProcessingMode_SKIP,
		RequestTrailerMode: extprocv3.ProcessingMode_SKIP, ResponseTrailerMode: extprocv3.ProcessingMode_SKIP}
}

func (m Mode) bodies() extprocv3.ProcessingMode_BodySendMode {
	switch m {
	case Buffered:
		return extprocv3.ProcessingMode_BUFFERED
	case Streamed:
		return extprocv3.ProcessingMode_STREAMED
	case HeadersOnly:
		return extprocv3.ProcessingMode_NONE
	}
	return extprocv3.ProcessingMode_FULL_DUPLEX_STREAMED
}

// pickerMetadata is what the protocol exchanges beside headers: the subset of
// endpoints to choose from goes out, the choice comes in, and the endpoint
// that really served goes out again with the response.
func pickerMetadata() *extprocv3.MetadataOptions {
	return &extprocv3.MetadataOptions{
		ForwardingNamespaces: &extprocv3.MetadataOptions_MetadataNamespaces{
			Untyped: []string{lbNamespace, subsetNamespace}},
		ReceivingNamespaces: &extprocv3.MetadataOptions_MetadataNamespaces{Untyped: []string{lbNamespace}},
	}
}
