package disagg

import (
	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Data-parallel ranks: the server behind rank i listens on the port above the
// first one's by i, and so does the sidecar before it.

// rank returns the decode server that x-data-parallel-host-port names, which is one
// of the sidecar's own ports. It is false, and the request answered, where
// there is no such port.
func (x *ClientRequest) rank() (rank int, ok bool) {
	name := x.r.RankHost
	if name == "" || !x.c.ForwardRanks {
		return 0, true
	}
	for i := range max(1, x.c.Ranks) {
		if name == (Target{Host: x.c.PodIP, Port: x.c.BasePort + i}).String() {
			return i, true
		}
	}
	x.answer(Answer{Status: 400}, RankHostHeader+" names no port of this sidecar")
	return 0, false
}

// ranked reports whether the request names its rank.
func (x *ClientRequest) ranked() bool { return x.r.RankHost != "" && x.c.ForwardRanks }

// peerPort is where the offloading connector of a server listens: the port that
// it is called on tells its rank.
func (x *ClientRequest) peerPort(t *Target) int {
	port := or(x.c.P2PPort, link.PeerPort)
	if rank := t.Port - x.c.BasePort; x.c.Ranks > 1 && x.c.BasePort > 0 && rank >= 0 && rank < x.c.Ranks {
		port += rank
	}
	return port
}

// sourceOf returns where cached blocks are to be pulled from, for a leg at a
// server; nil is nowhere.
func (x *ClientRequest) sourceOf(at *Target) object {
	s := x.r.Source
	if s == nil || at != nil && at.Host == s.Host && at.Port == s.Port {
		return nil // a server has its own blocks
	}
	return connector.Peer(x.uuid("kv source"), s.Host, x.peerPort(s))
}
