package connector

import (
	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Offloading pulls blocks from the other host's memory, where its server put them before.
var Offloading = &Connector{
	Profile: link.Profile{Name: "offloading", VLLM: "offloading", MeetingPort: link.PeerPort,
		Handshake:    2 * machine.Millisecond,
		RDMAPermille: 900, Streams: 4, StreamBytesPerSecond: 4e9},
	Sidecar: Sidecar{
		AtOnce: true, Pulls: true,
		Together: func(r *Request) *Legs {
			id := r.UUID("transfer")
			prefill := OneTokenLoose(r.Path, r.Body)
			prefill["kv_transfer_params"] = withSource(
				jsonobject.Object{"remote_decoder": jsonobject.Object{"kv_request_id": id}}, r.Source)
			return &Legs{Prefill: r.Body.With(prefill),
				Decode: r.Body.With(jsonobject.Object{
					"kv_transfer_params": jsonobject.Object{"remote_prefiller": Peer(id, r.Host, r.PeerPort)}})}
		},
	},
	Server: Server{Read: func(p *openai.Sampling, _ *At) (*Params, *openai.Error) {
		var q struct {
			Decoder   *peer `json:"remote_decoder"`
			Prefiller *peer `json:"remote_prefiller"`
			Source    *peer `json:"remote_kv_source"`
		}
		some, bad := ReadParams(p, &q, "remote_decoder", "remote_prefiller")
		switch {
		case !some:
			return nil, bad
		case q.Decoder != nil:
			return &Params{Keep: true, Key: peerKey(q.Decoder.Request), Source: q.Source.remote()}, nil
		case q.Prefiller != nil:
			return &Params{Remote: q.Prefiller.remote(), Source: q.Source.remote()}, nil
		}
		return nil, nil
	}},
}

// withSource adds to a prefill leg's parameters the server to take cached blocks from.
func withSource(params, source jsonobject.Object) jsonobject.Object {
	if source != nil {
		params["remote_kv_source"] = source
	}
	return params
}

// Peer returns the parameters that name a server which has blocks, or will have them, under an id.
func Peer(id, host string, port int) jsonobject.Object {
	return jsonobject.Object{"kv_request_id": id, "remote_host": host, "remote_port": port}
}

// peer is one end of a pull.
type peer struct {
	Request string `json:"kv_request_id"`
	Host    string `json:"remote_host"`
	Port    int    `json:"remote_port"`
}

func (p *peer) remote() *Remote {
	if p == nil {
		return nil
	}
	return &Remote{Host: p.Host, Port: p.Port, Key: peerKey(p.Request)}
}

func peerKey(id string) string { return "peer " + id }
