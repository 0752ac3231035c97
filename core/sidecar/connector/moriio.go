package connector

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

// MoRIIO is AMD's connector in its WRITE mode, under nixlv2 (pd-sidecar --moriio-*). The prefill server writes into
// blocks that the decode server allocated, so the sidecar gives each server the other's address. The zero value is off.
type MoRIIO struct {
	Write bool
	// Parallel sends both legs at once. The client gets nothing before the prefill has succeeded, and gets an error
	// after Wait. A Wait of 0 is DefaultMoRIIOWait.
	Parallel bool
	Wait     machine.Time
	// Ports of the servers' MoRI-IO endpoints.
	DecodeNotifyPort, DecodeHandshakePort, PrefillNotifyPort, PrefillHandshakePort int
	// TPSize and DPSize are the engines' tensor and data parallel sizes. DPSizeLocal counts the ranks in one pod; the
	// legs omit it where it is 0.
	TPSize, DPSize, DPSizeLocal int
}

// Defaults of pd-sidecar's MoRI-IO flags.
const (
	DefaultMoRIIOWait          = 30 * machine.Second
	DefaultMoRIIONotifyPort    = 61005
	DefaultMoRIIOHandshakePort = 6301
)

// MoRIIOPeers are the addresses that the legs of one request name: the decode pod's own, and all pods of either side
// where a deployment spans several.
type MoRIIOPeers struct {
	Local           string
	Decode, Prefill []string
}

// The sidecar sets RequestIDHeader and RankHeader on legs. They hold the id that the two servers agree on and the
// data-parallel rank that serves the leg.
const (
	RequestIDHeader = "X-Request-Id"
	RankHeader      = "X-Data-Parallel-Rank"
)

// rank returns the data-parallel rank to which the sidecar pins both legs.
func (r *Request) rank() int {
	if r.MoRIIO.DPSize <= 1 {
		return 0
	}
	return int(r.Number("data-parallel rank") % uint64(r.MoRIIO.DPSize))
}

// rankHeader pins a leg to a rank. It returns no header where the deployment has one rank.
func (r *Request) rankHeader(rank int) header.List {
	if r.MoRIIO.DPSize <= 1 {
		return nil
	}
	return header.Of(RankHeader, strconv.Itoa(rank))
}

// moriio adds the other side's address and parallel sizes to a leg's parameters.
func (r *Request) moriio(kv jsonobject.Object, host string, notify, handshake int, pods []string) {
	maps.Copy(kv, jsonobject.Object{"remote_host": host, "remote_notify_port": notify,
		"remote_handshake_port": handshake,
		"remote_dp_rank":        r.rank(), "remote_dp_rank_override": true, "transfer_id": "tx" + r.UUID("request"),
		"tp_size": cmp.Or(r.MoRIIO.TPSize, 1), "remote_dp_size": cmp.Or(r.MoRIIO.DPSize, 1)})
	r.hosts(kv, pods)
}

// moriioPrefill adds the decode server to the prefill leg's parameters.
func (r *Request) moriioPrefill(kv jsonobject.Object) {
	r.moriio(kv, r.Peers.Local, r.MoRIIO.DecodeNotifyPort, r.MoRIIO.DecodeHandshakePort, r.Peers.Decode)
}

// hosts adds the names of the other side's pods.
func (r *Request) hosts(kv jsonobject.Object, list []string) {
	if len(list) == 0 {
		return
	}
	all := make([]any, len(list))
	for i, h := range list {
		all[i] = h
	}
	kv["remote_hosts"] = all
	if n := r.MoRIIO.DPSizeLocal; n > 0 {
		kv["remote_dp_size_local"] = n
	}
}

// moriioDecode adds to the prefill server's answer what that server does not know. It returns the rank of the decode
// leg: the rank of the prefill, if the engine has that rank.
func (r *Request) moriioDecode(kv jsonobject.Object) (rank int) {
	m := r.MoRIIO
	rank = r.rank()
	if n, ok := kv.Integer("remote_dp_rank"); ok && m.DPSize > 1 && n >= 0 && n < m.DPSize &&
		fmt.Sprint(kv["remote_dp_rank"]) == strconv.Itoa(n) {
		rank = n
	}
	if kv == nil {
		return rank
	}
	kv["remote_dp_rank"], kv["remote_dp_rank_override"] = rank, true
	ours := jsonobject.Object{"transfer_id": "tx" + r.UUID("request"), "remote_notify_port": m.DecodeNotifyPort,
		"remote_handshake_port": m.DecodeHandshakePort, "remote_dp_size": cmp.Or(m.DPSize, 1)}
	r.hosts(ours, r.Peers.Prefill)
	for k, v := range ours {
		if _, has := kv[k]; !has {
			kv[k] = v
		}
	}
	return rank
}

// moriioTogether returns the two legs of a parallel dispatch.
func moriioTogether(r *Request) *Legs {
	m := r.MoRIIO
	if !m.Write || !m.Parallel {
		return nil
	}
	there := jsonobject.Object{"do_remote_decode": false, "do_remote_prefill": true, "remote_block_ids": []any{},
		"remote_engine_id": r.Host + ":" + strconv.Itoa(m.PrefillHandshakePort), "remote_port": m.PrefillHandshakePort}
	r.moriio(there, r.Host, m.PrefillNotifyPort, m.PrefillHandshakePort, r.Peers.Prefill)
	prefill, rank := nixlPrefill(r)
	if r.Path != GeneratePath { // the real sidecar sets all three
		prefill = prefill.With(jsonobject.Object{"max_tokens": 1, "max_completion_tokens": 1, "max_output_tokens": 1,
			"min_tokens": 1})
	}
	wait := m.Wait
	if wait <= 0 {
		wait = DefaultMoRIIOWait
	}
	return &Legs{Prefill: prefill, Decode: r.Body.With(jsonobject.Object{"kv_transfer_params": there}),
		Head: append(header.Of(RequestIDHeader, r.UUID("request")), rank...), Wait: wait}
}
