package link

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Profile describes how a connector transfers. The figures apply to a cache of 640 MiB (2,048 tokens of a 70B model in
// 16 bits) over a 100 Gb/s NIC with document 003's ranges: NIXL v2 50–100 ms, NIXL v1 150–200 ms, LMCache 100–150 ms. A
// script test holds them there.
type Profile struct {
	Name string
	// VLLM is the beginning of its names in vLLM's --kv-transfer-config, in lower case, separated by spaces.
	VLLM string
	// Metrics is the connector's name in vLLM's metrics; if it is empty, transfers are reported under NIXL's names.
	Metrics string
	// Handshake passes before bytes move: side channel, metadata, registration.
	Handshake machine.Time
	// RDMAPermille is the part of the line rate that one transfer reaches where
	// all its wires have RDMA. Without RDMA, or with NoRDMA, the transfer is
	// Streams TCP streams of at most StreamBytesPerSecond each.
	RDMAPermille         int64
	NoRDMA               bool
	Streams              int64
	StreamBytesPerSecond int64
	// Blocking senders serve one transfer at a time and compute nothing
	// meanwhile.
	Blocking bool
	// PipelinePermille is the part that must have arrived before decoding may
	// begin; 0 is all of it.
	PipelinePermille int64
	// CompressBits is the width to which 16-bit elements are squeezed, 0 for
	// none.
	CompressBits int64
	// ViaStore sends through the external cache: there and back.
	ViaStore bool
	// MeetingPort is the port at which prefill and decode servers of one request usually find each other before either
	// has a cache; 0 if they need none.
	MeetingPort int
}

// tcpPermille is the part of the line rate that any number of TCP streams
// reaches together: headers, acknowledgements and copies take the rest.
const tcpPermille = 850

// TCP is a plain copy over one stream, which moves about 4 GB/s between hosts of today (iperf3, jumbo frames, one
// core copying).
var TCP = Profile{Name: "tcp", Handshake: machine.Millisecond, NoRDMA: true, Streams: 1, StreamBytesPerSecond: 4e9}

// The usual meeting ports.
const (
	BootstrapPort = 8998 // SGLang's and Mooncake's bootstrap server
	PeerPort      = 7777 // the offloading connector's
)

// Compressed returns the profile with 16-bit caches sent as INT8: half the bytes.
func (p Profile) Compressed() Profile {
	p.CompressBits = 8
	return p
}

// Pipelined returns the profile with decoding allowed once a tenth of the cache,
// the first layers, has arrived.
func (p Profile) Pipelined() Profile {
	p.PipelinePermille = 100
	return p
}

// WithoutRDMA returns the profile on TCP only.
func (p Profile) WithoutRDMA() Profile {
	p.NoRDMA = true
	return p
}

// UCXHasRDMA reads the environment variable UCX_TLS: whether the transports
// that it allows include RDMA. Unset or all allows everything; document 003's
// "cuda_ipc,cuda_copy,tcp" does not. A leading ^ excludes instead.
func UCXHasRDMA(tls string) bool {
	tls = strings.TrimSpace(strings.ToLower(tls))
	if tls == "" {
		return true
	}
	list, exclude := strings.CutPrefix(tls, "^")
	for _, transport := range strings.Split(list, ",") {
		switch transport = strings.TrimSpace(transport); {
		case transport == "all" || transport == "ib" || transport == "rdma" || transport == "gga",
			strings.HasPrefix(transport, "rc"), strings.HasPrefix(transport, "dc"), strings.HasPrefix(transport, "ud"):
			return !exclude
		}
	}
	return exclude
}

// Bytes returns the bytes on the wire for a cache of so many bytes of 16-bit elements.
func (p Profile) Bytes(cache int64) int64 {
	if p.CompressBits > 0 && p.CompressBits < 16 {
		return (cache*p.CompressBits + 15) / 16
	}
	return cache
}

// FromStore makes the Start message for a cache that lies in the external cache
// already.
func (p Profile) FromStore(t *Topology, id ID, to int, cacheBytes int64) (Start, error) {
	s, err := p.Transfer(t, id, to, to, cacheBytes)
	if err == nil && p.ViaStore {
		s.Legs = s.Legs[1:]
	}
	return s, err
}

// Transfer makes the Start message for a cache of 16-bit elements that goes
// from one node to another. Its Serial is the sender for blocking connectors.
func (p Profile) Transfer(t *Topology, id ID, from, to int, cacheBytes int64) (Start, error) {
	s := Start{ID: id, Bytes: p.Bytes(cacheBytes)}
	if p.Blocking {
		s.Serial = uint64(from) + 1
	}
	if p.PipelinePermille > 0 {
		s.UsableBytes = max(1, s.Bytes*p.PipelinePermille/1000)
	}
	var routes []Route
	var err error
	add := func(r Route, problem error) {
		if err == nil {
			err = problem
		}
		routes = append(routes, r)
	}
	if p.ViaStore {
		add(t.ToStore(from))
		add(t.FromStore(to))
	} else {
		add(t.Between(from, to))
	}
	if err != nil {
		return Start{}, fmt.Errorf("connector %s: %w", p.Name, err)
	}
	for _, r := range routes {
		leg := Leg{Path: r.Path, Delay: p.Handshake + r.Latency}
		if r.RDMA && !p.NoRDMA {
			leg.BytesPerSecond = r.BytesPerSecond / 1000 * p.RDMAPermille
		} else {
			leg.BytesPerSecond = min(p.Streams*p.StreamBytesPerSecond, r.BytesPerSecond/1000*tcpPermille)
		}
		s.Legs = append(s.Legs, leg)
	}
	return s, nil
}
