package sidecar

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/connector"
)

// Flags are the sidecar's options in force, as windtunnel sidecar takes them.
func (s *Sidecar) Flags() []string {
	o := s.o
	o.Listen = s.Addr()
	return o.Flags()
}

// Flags are options as windtunnel sidecar takes them, without those that have their zero
// value, and without MoRI-IO's, which no scenario has.
func (o *Options) Flags() (out []string) {
	flag := func(name string, value any, given bool) {
		if given {
			out = append(out, fmt.Sprintf("--%s=%v", name, value))
		}
	}
	on := func(name string, value bool) { flag(name, value, value) }
	number := func(name string, value int) { flag(name, value, value != 0) }
	text := func(name, value string) { flag(name, value, value != "") }
	list := func(name, of string) { text(name, strings.TrimSuffix(of, ",")) }
	address := func(host, port, at string) {
		if h, p, err := net.SplitHostPort(at); err == nil {
			text(host, h)
			text(port, p)
		}
	}
	named := func(name string, is bool) string {
		if is {
			return name + ","
		}
		return ""
	}
	d := &o.Disagg
	way := d.Connector
	if way == nil {
		way = connector.NIXLv2
	}
	address("listen", "port", o.Listen)
	address("decoder-host", "model-server-port", o.Decoder)
	flag("data-parallel-size", o.Ranks, o.Ranks > 1)
	text("advertise", o.Advertise)
	text("kv-connector", way.Name)
	switch way {
	case connector.Mooncake:
		number("mooncake-bootstrap-port", d.MeetingPort)
	case connector.SGLang:
		number("sglang-bootstrap-port", d.MeetingPort)
	}
	number("p2p-connector-port", d.P2PPort)
	on("enable-p2p-pull", d.P2PPull)
	on("enable-prefiller-sampling", d.Sample)
	text("ec-connector", string(d.Encoder))
	number("prefill-max-retries", d.Retries)
	on("prefill-retry-on-5xx", d.RetryOn5xx)
	flag("prefill-retry-backoff", d.RetryBackoff.Duration(), d.RetryBackoff > 0)
	on("prefill-fallback-local", d.FallBack)
	number("decode-chunk-size", d.ChunkTokens)
	on("enable-ssrf-protection", o.Protect)
	text("endpoints-file", o.EndpointsFile)
	text("objects", o.Objects)
	text("inference-pool-name", o.PoolName)
	text("inference-pool-namespace", o.Namespace)
	for _, x := range o.Prefillers {
		text("prefill-url", x)
	}
	number("session-cache-size", o.SessionCache)
	flag("secure-proxy", o.Serve.On, true)
	text("cert-path", o.Serve.CertPath)
	text("ca-file", o.CAFile)
	list("enable-tls", named("prefiller", o.Prefiller.On)+named("decoder", o.DecoderTLS.On)+
		named("encoder", o.Encoder.On))
	list("tls-insecure-skip-verify",
		named("prefiller", o.Prefiller.Skip)+named("decoder", o.DecoderTLS.Skip)+named("encoder", o.Encoder.Skip))
	limit := func(name string, d time.Duration) { flag(name, max(d, 0), d != 0) } // below 0 is none
	limit("body-idle-timeout", o.Body.Idle)
	limit("body-timeout", o.Body.Total)
	number("max-idle-conns-per-host", o.MaxIdlePerHost)
	flag("timing-headers", false, o.PlainHeaders)
	on("decoder-health", o.DecoderHealth)
	flag("kv-block-bytes", o.BlockBytes, o.BlockBytes > 0)
	text("pod-name", o.PodName)
	if _, port, err := net.SplitHostPort(o.MetricsListen); err == nil {
		text("metrics-port", port)
	}
	return out
}
