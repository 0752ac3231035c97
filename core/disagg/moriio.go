package disagg

import (
	"fmt"
	"strconv"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
)

// MoRIIO is AMD's connector in its WRITE mode, under nixlv2 (pd-sidecar
// --moriio-*): the prefill server writes into blocks that the decode server
// gave it, so the sidecar tells each where the other is. The zero value is off.
type MoRIIO struct {
	Write bool
	// Parallel sends both legs at once. The client gets nothing before the
	// prefill has succeeded, and after Wait an error; 0 is DefaultMoRIIOWait.
	Parallel bool
	Wait     machine.Time
	// Ports of the servers' MoRI-IO endpoints.
	DecodeNotifyPort, DecodeHandshakePort, PrefillNotifyPort, PrefillHandshakePort int
	// TPSize and DPSize are the engines' tensor and data parallel sizes, and
	// DPSizeLocal the ranks in one pod; 0 for the last is not told.
	TPSize, DPSize, DPSizeLocal int
}

// Defaults of pd-sidecar's MoRI-IO flags.
const (
	DefaultMoRIIOWait          = 30 * machine.Second
	DefaultMoRIIONotifyPort    = 61005
	DefaultMoRIIOHandshakePort = 6301
)

// MoRIIOPeers are the addresses that the legs of one request name: the decode
// pod's own, and where a deployment spans several pods those of either side.
type MoRIIOPeers struct {
	Local           string
	Decode, Prefill []string
}

// rankOfRequest is the data-parallel rank that both legs are pinned to.
func (x *ClientRequest) rankOfRequest() int {
	if x.c.MoRIIO.DPSize <= 1 {
		return 0
	}
	return int(x.number("data-parallel rank") % uint64(x.c.MoRIIO.DPSize))
}

// rankHeader pins a leg to a rank where there are several.
func (x *ClientRequest) rankHeader(rank int) header.List {
	if x.c.MoRIIO.DPSize <= 1 {
		return nil
	}
	return header.Of(RankHeader, strconv.Itoa(rank))
}

// moriioPrefill are the prefill leg's parameters: whom to write to.
func (x *ClientRequest) moriioPrefill() object {
	m := &x.c.MoRIIO
	kv := object{"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil, "remote_block_ids": nil,
		"remote_host": x.r.Peers.Local, "remote_port": nil, "remote_notify_port": m.DecodeNotifyPort, "remote_handshake_port": m.DecodeHandshakePort,
		"remote_dp_rank": x.rankOfRequest(), "remote_dp_rank_override": true, "transfer_id": "tx" + x.uuid("request"),
		"tp_size": or(m.TPSize, 1), "remote_dp_size": or(m.DPSize, 1)}
	x.hosts(kv, x.r.Peers.Decode)
	return kv
}

// hosts names the pods of the other side.
func (x *ClientRequest) hosts(kv object, list []string) {
	if len(list) == 0 {
		return
	}
	all := make([]any, len(list))
	for i, h := range list {
		all[i] = h
	}
	kv["remote_hosts"] = all
	if n := x.c.MoRIIO.DPSizeLocal; n > 0 {
		kv["remote_dp_size_local"] = n
	}
}

// moriioDecode completes what the prefill server said with what it does not
// know, and returns the rank that the decode leg is pinned to: the one that the
// prefill ran on where that is one of the engine's.
func (x *ClientRequest) moriioDecode(kv object) (rank int) {
	m := &x.c.MoRIIO
	rank = x.rankOfRequest()
	if n, ok := kv.integer("remote_dp_rank"); ok && m.DPSize > 1 && n >= 0 && n < m.DPSize && fmt.Sprint(kv["remote_dp_rank"]) == strconv.Itoa(n) {
		rank = n
	}
	if kv == nil {
		return rank
	}
	kv["remote_dp_rank"], kv["remote_dp_rank_override"] = rank, true
	ours := object{"transfer_id": "tx" + x.uuid("request"), "remote_notify_port": m.DecodeNotifyPort,
		"remote_handshake_port": m.DecodeHandshakePort, "remote_dp_size": or(m.DPSize, 1)}
	x.hosts(ours, x.r.Peers.Prefill)
	for k, v := range ours {
		if _, has := kv[k]; !has {
			kv[k] = v
		}
	}
	return rank
}

// both is a request whose legs run at once.
type both struct {
	prefill, decode int
	until           machine.Time
	prefilled       bool
	head            bool    // the decode server has answered
	failed          *Failed // or cannot
}

// moriioParallel sends both legs.
func (x *ClientRequest) moriioParallel() {
	m, t := &x.c.MoRIIO, x.targets[0]
	kv := x.moriioPrefill()
	if x.source != nil {
		kv["remote_kv_source"] = x.source
	}
	f := single(x.r.Path, x.body)
	if x.r.Path != generatePath {
		for _, key := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens"} {
			f[key] = 1
		}
	}
	f["kv_transfer_params"] = kv
	head := append(header.Of(RequestIDHeader, x.uuid("request")), x.rankHeader(x.rankOfRequest())...)
	there := object{"do_remote_decode": false, "do_remote_prefill": true, "remote_engine_id": t.Host + ":" + strconv.Itoa(m.PrefillHandshakePort),
		"remote_block_ids": []any{}, "remote_host": t.Host, "remote_port": m.PrefillHandshakePort, "remote_notify_port": m.PrefillNotifyPort,
		"remote_handshake_port": m.PrefillHandshakePort, "remote_dp_rank": x.rankOfRequest(), "remote_dp_rank_override": true,
		"transfer_id": kv["transfer_id"], "tp_size": or(m.TPSize, 1), "remote_dp_size": or(m.DPSize, 1)}
	x.hosts(there, x.r.Peers.Prefill)
	rank, ok := x.rank()
	if !ok {
		return
	}
	wait := m.Wait
	if wait <= 0 {
		wait = DefaultMoRIIOWait
	}
	x.prefillAt = x.now
	x.record(flow.PrefillLegSent, t.String(), flow.D("try", 1))
	b := &both{until: x.now.Add(wait)}
	b.prefill = x.call(Leg{Kind: Prefill, Target: t, Body: x.body.with(f).write(), Set: head, Concurrent: true})
	b.decode = x.callDecode(Leg{Body: x.body.with(object{"kv_transfer_params": there}).write(), Set: head, Concurrent: true, Rank: rank})
	x.both = b
}

// bothPrefilled is the prefill server's answer, or the lack of one.
func (x *ClientRequest) bothPrefilled(good bool, answer Answer, why string) {
	b := x.both
	if b.prefilled = good; !good {
		x.do(Drop{b.decode})
		x.answer(answer, why)
		return
	}
	x.remote = true
	x.deliverBoth()
}

// deliverBoth hands out the decode server's answer once the prefill has succeeded.
func (x *ClientRequest) deliverBoth() {
	b := x.both
	switch {
	case !b.prefilled:
	case b.failed != nil:
		x.decodeFailed(*b.failed)
	case b.head:
		x.deliver(x.leg(b.decode), nil, nil)
	}
}

// bothTimedOut gives both legs up.
func (x *ClientRequest) bothTimedOut() {
	x.do(Drop{x.both.prefill})
	x.do(Drop{x.both.decode})
	why := "decode aborted: prefill did not complete within the MoRI-IO parallel-dispatch KV-wait timeout"
	x.record(flow.PrefillLegFailed, x.targets[0].String(), flow.D("reason", "it did not answer in time"))
	x.answer(Answer{Status: 504, Head: header.Of("Content-Type", "application/json"), Body: object{"error": why}.write()}, why)
}
