package connector

import (
	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

// SharedStorage writes files, which the other side finds by their content. With a threshold of 0 a
// server accepts whatever is there.
var SharedStorage = &Connector{
	Profile: link.Profile{Name: "shared-storage", VLLM: "sharedstorage exampleconnector",
		Handshake: 5 * machine.Millisecond,
		NoRDMA:    true, Streams: 4, StreamBytesPerSecond: 2e9, ViaStore: true},
	Sidecar: Sidecar{
		ByContent: true, DecodeFirst: true,
		Prefill: func(r *Request) (jsonobject.Object, header.List) {
			f := lowerMinimum(jsonobject.Object{"max_tokens": 1, "max_completion_tokens": 1}, r.Body)
			if r.Path == ResponsesPath || r.Path == GeneratePath {
				f = OneToken(r.Path, r.Body)
			}
			f["cache_hit_threshold"] = 0
			return r.Body.With(f), nil
		},
		Decode: func(r *Request, _ jsonobject.Object) (jsonobject.Object, header.List) {
			return r.Body.With(jsonobject.Object{"cache_hit_threshold": 0}), nil
		},
	},
}
