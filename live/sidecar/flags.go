package sidecar

import (
	"cmp"
	"fmt"
	"net"
	"reflect"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Flags returns the sidecar's options in force, as flags of windtunnel sidecar.
func (s *Sidecar) Flags() []string {
	o := s.o
	o.Listen = s.Addr()
	return o.Flags()
}

// table returns the options that have one flag each, by the flags' names.
func (o *Options) table() []struct {
	flag string
	at   any // a pointer
} {
	d := &o.Disagg
	return []struct {
		flag string
		at   any
	}{
		{"advertise", &o.Advertise}, {"p2p-connector-port", &d.P2PPort}, {"enable-p2p-pull", &d.P2PPull},
		{"enable-prefiller-sampling", &d.Sample}, {"prefill-max-retries", &d.Retries},
		{"prefill-retry-on-5xx", &d.RetryOn5xx}, {"prefill-retry-backoff", &d.RetryBackoff},
		{"prefill-fallback-local", &d.FallBack}, {"decode-chunk-size", &d.ChunkTokens},
		{"prefill-threshold", &d.PromptThreshold},
		{"enable-ssrf-protection", &o.Protect}, {"endpoints-file", &o.EndpointsFile}, {"objects", &o.Objects},
		{"inference-pool-name", &o.PoolName}, {"inference-pool-namespace", &o.Namespace},
		{"prefill-url", &o.Prefillers},
		{"session-cache-size", &o.SessionCache}, {"cert-path", &o.Serve.CertPath}, {"ca-file", &o.CAFile},
		{"max-idle-conns-per-host", &o.MaxIdlePerHost}, {"decoder-health", &o.DecoderHealth},
		{"kv-block-bytes", &o.BlockBytes}, {"pod-name", &o.PodName},
	}
}

// Take sets the options that have one flag each to the values of these flags, by the flags' names.
func (o *Options) Take(flags map[string]any) {
	for _, x := range o.table() {
		at := reflect.ValueOf(x.at).Elem()
		at.Set(reflect.ValueOf(flags[x.flag]).Convert(at.Type()))
	}
}

// Flags returns the options as flags of windtunnel sidecar. It leaves out options with their zero value, and MoRI-IO's,
// which no scenario has.
func (o *Options) Flags() (out []string) {
	flag := func(name string, value any, given bool) {
		if given {
			out = append(out, fmt.Sprintf("--%s=%v", name, value))
		}
	}
	address := func(host, port, at string) {
		if h, p, err := net.SplitHostPort(at); err == nil {
			flag(host, h, h != "")
			flag(port, p, p != "")
		}
	}
	peers := func(name string, prefiller, decoder, encoder bool) {
		var list []string
		for i, is := range []bool{prefiller, decoder, encoder} {
			if is {
				list = append(list, [...]string{"prefiller", "decoder", "encoder"}[i])
			}
		}
		flag(name, strings.Join(list, ","), list != nil)
	}
	d := &o.Disagg
	way := cmp.Or(d.Connector, connector.NIXLv2)
	address("listen", "port", o.Listen)
	address("decoder-host", "model-server-port", o.Decoder)
	flag("data-parallel-size", o.Ranks, o.Ranks > 1)
	flag("kv-connector", way.Name, true)
	switch way {
	case connector.Mooncake, connector.SGLang:
		flag(way.Name+"-bootstrap-port", d.MeetingPort, d.MeetingPort != 0)
	}
	flag("ec-connector", d.Encoder, d.Encoder != "")
	for _, x := range o.table() {
		switch at := x.at.(type) {
		case *[]string:
			for _, value := range *at {
				flag(x.flag, value, true)
			}
		case *machine.Time:
			flag(x.flag, at.Duration(), *at > 0)
		default:
			value := reflect.ValueOf(at).Elem()
			flag(x.flag, value, !value.IsZero())
		}
	}
	flag("secure-proxy", o.Serve.On, true)
	peers("enable-tls", o.Prefiller.On, o.DecoderTLS.On, o.Encoder.On)
	peers("tls-insecure-skip-verify", o.Prefiller.Skip, o.DecoderTLS.Skip, o.Encoder.Skip)
	flag("body-idle-timeout", max(o.Body.Idle, 0), o.Body.Idle != 0) // below 0 there is no limit
	flag("body-timeout", max(o.Body.Total, 0), o.Body.Total != 0)
	flag("timing-headers", false, o.PlainHeaders)
	if _, port, err := net.SplitHostPort(o.MetricsListen); err == nil {
		flag("metrics-port", port, port != "")
	}
	return out
}
