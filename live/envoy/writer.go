package envoy

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/windtunnel/windtunnel/core/gateway/proxy"
)

// writer makes Envoy's messages from windtunnel's values, for a bootstrap file (Config) and for a control plane
// (Dynamic) alike. It keeps the first error, which check returns.
type writer struct {
	limits    proxy.Limits
	accessLog string
	err       error
}

func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// check returns the first error of w, or the first of Envoy's rules that a message breaks.
func (w *writer) check(all ...interface{ ValidateAll() error }) error {
	for _, x := range all {
		if w.err != nil {
			break
		}
		if err := x.ValidateAll(); err != nil {
			w.fail(fail(BadConfig, err, "the configuration breaks a rule of Envoy's: %v", err))
		}
	}
	return w.err
}

// pack wraps a message in the envelope of extensions.
func (w *writer) pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		w.fail(fail(BadConfig, err, "%T cannot be written: %v", m, err))
	}
	return a
}

func (w *writer) extension(name string, m proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: w.pack(m)}
}

func (w *writer) address(hostport string) *corev3.Address {
	host, port, err := splitHostPort(hostport)
	if err != nil {
		w.fail(err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// fromControl is the source of a resource that the control plane delivers.
func fromControl() *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

// fromFile is the source of a resource in a file.
func fromFile(path string) *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{
			PathConfigSource: &corev3.PathConfigSource{Path: path}}}
}

func duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
func count(n int) *wrapperspb.UInt32Value           { return wrapperspb.UInt32(uint32(n)) }
