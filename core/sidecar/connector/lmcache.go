package connector

import (
	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

// LMCache stores compressed blocks in Redis and reads them back, with a round trip for each leg. The prefill leg warms
// that cache, and the decode server finds the blocks there by their content.
var LMCache = &Connector{
	Profile: link.Profile{Name: "lmcache", VLLM: "lmcache", Handshake: 2 * machine.Millisecond, NoRDMA: true,
		Streams:              2,
		StreamBytesPerSecond: 3e9, CompressBits: 8, ViaStore: true},
	Deprecated: true,
	Sidecar: Sidecar{
		ByContent: true,
		Prefill: func(r *Request) (jsonobject.Object, header.List) {
			return r.Body.With(OneToken(r.Path, r.Body)), nil
		},
		Decode: func(r *Request, _ jsonobject.Object) (jsonobject.Object, header.List) { return r.Body, nil },
	},
}
