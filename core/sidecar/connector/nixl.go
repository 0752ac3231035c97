package connector

import (
	"bytes"
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// The two versions of NIXL that document 003 distinguishes.
var (
	// NIXLv2 is asynchronous, and uses RDMA where the network supports it. In today's vLLM, decoding waits for the
	// whole cache. Pipelined lets it begin early.
	NIXLv2 = &Connector{
		Profile: link.Profile{Name: "nixlv2", VLLM: "nixl multi moriio", Handshake: 3 * machine.Millisecond,
			RDMAPermille: 960, Streams: 4, StreamBytesPerSecond: 4e9},
		Sidecar: nixl, Server: Server{Read: readNIXL}}
	// NIXLv1 is synchronous over one TCP stream.
	NIXLv1 = &Connector{
		Profile: link.Profile{Name: "nixl", VLLM: "p2pnccl pynccl", Handshake: 5 * machine.Millisecond, NoRDMA: true,
			Streams: 1, StreamBytesPerSecond: 4e9, Blocking: true},
		Sidecar: nixl, Deprecated: true}
)

// nixl asks the prefill server to keep its blocks, and passes the prefill server's answer to the decode server.
var nixl = Sidecar{
	RequestID: true,
	Together:  moriioTogether,
	Prefill:   nixlPrefill,
	Decode: func(r *Request, answer jsonobject.Object) (jsonobject.Object, header.List) {
		var head header.List
		if r.MoRIIO.Write {
			head = r.rankHeader(r.moriioDecode(answer.Object("kv_transfer_params")))
		}
		f := jsonobject.Object{"kv_transfer_params": answer["kv_transfer_params"]}
		if _, given := r.Body["sampling_params"]; given && r.Path == GeneratePath &&
			r.Body.Object("sampling_params") == nil {
			f["sampling_params"] = jsonobject.Absent
		}
		return r.Body.With(f), head
	},
	Fetch: func(k *Kept) *Remote {
		if k == nil || k.EngineID == "" || k.Host == "" || k.Blocks.Count == 0 {
			return nil
		}
		return &Remote{EngineID: k.EngineID, Host: k.Host, Port: k.Port, Blocks: k.Blocks}
	},
}

func nixlPrefill(r *Request) (jsonobject.Object, header.List) {
	kv := jsonobject.Object{"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil,
		"remote_block_ids": nil, "remote_host": nil, "remote_port": nil}
	if r.MoRIIO.Write {
		r.moriioPrefill(kv)
	}
	f := OneToken(r.Path, r.Body)
	f["kv_transfer_params"] = withSource(kv, r.Source)
	return r.Body.With(f), r.rankHeader(r.rank())
}

// readNIXL reads kv_transfer_params as vLLM's NixlConnector and MoRI-IO do. The prefill leg's answer returns unknown
// fields unchanged.
func readNIXL(p *openai.Sampling, _ *At) (*Params, *openai.Error) {
	var q struct {
		RemoteDecode  bool            `json:"do_remote_decode"`
		RemotePrefill bool            `json:"do_remote_prefill"`
		EngineID      string          `json:"remote_engine_id"`
		Blocks        json.RawMessage `json:"remote_block_ids"`
		Host          string          `json:"remote_host"`
		Port          json.RawMessage `json:"remote_port"`
		Transfer      string          `json:"transfer_id"`
		Notify        json.RawMessage `json:"remote_notify_port"`
		Handshake     json.RawMessage `json:"remote_handshake_port"`
		Source        *peer           `json:"remote_kv_source"`
	}
	if some, bad := ReadParams(p, &q); !some {
		return nil, bad
	}
	k := &Params{Keep: q.RemoteDecode, Source: q.Source.remote()}
	if raw := p.KVTransferParams; k.Keep {
		k.Answer = func(kept *Kept) jsonobject.Object { return nixlAnswer(raw, kept) }
	}
	switch {
	case q.Transfer != "" && q.RemoteDecode: // MoRI-IO
		k.Key = transferKey(q.Transfer)
		return k, nil
	// MoRI-IO, both legs at once
	case q.Transfer != "" && q.RemotePrefill && len(q.Notify) > 0 && string(bytes.TrimSpace(q.Blocks)) == "[]":
		port, err := portOf(q.Handshake)
		if err != nil {
			return badParam("remote_handshake_port", "expected %v", err)
		}
		k.Remote = &Remote{Host: q.Host, Port: port, Key: transferKey(q.Transfer)}
		return k, nil
	case !q.RemotePrefill:
		return k, nil
	}
	blocks, err := flatInts(q.Blocks, nil, 0)
	if err != nil {
		return badParam("remote_block_ids", "expected %v", err)
	}
	port, err := portOf(q.Port)
	if err != nil {
		return badParam("remote_port", "expected %v", err)
	}
	// Without these fields the server can fetch nothing. It computes the prompt itself, as vLLM does.
	if q.EngineID != "" && q.Host != "" && len(blocks) > 0 {
		k.Remote = &Remote{EngineID: q.EngineID, Host: q.Host, Port: port, Blocks: BlocksOf(blocks)}
	}
	return k, nil
}

// nixlAnswer returns what the decode leg needs to fetch the blocks, with all other fields of the request.
func nixlAnswer(raw json.RawMessage, k *Kept) jsonobject.Object {
	fields := jsonobject.Object{}
	_ = json.Unmarshal(raw, &fields) // raw was an object when the request arrived
	fields["do_remote_prefill"], fields["do_remote_decode"] = true, false
	fields["remote_engine_id"], fields["remote_block_ids"] = k.EngineID, k.Blocks.Numbers()
	fields["remote_host"], fields["remote_port"] = k.Host, k.Port
	fields["remote_request_id"], fields["tp_size"] = k.RequestID, max(1, k.TensorParallel)
	return fields
}
