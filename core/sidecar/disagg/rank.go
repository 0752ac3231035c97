package disagg

import (
	"cmp"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Data-parallel ranks: the server of rank i listens on the first server's port + i, and the sidecar in front of it on
// the first sidecar's port + i.

// rank returns the decode server that x-data-parallel-host-port names by one of the sidecar's own ports. Where no such
// port exists, it answers the request and returns false.
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

// peerPort returns the port where the offloading connector of a server listens. The server's own port determines its
// rank.
func (x *ClientRequest) peerPort(t *Target) int {
	port := cmp.Or(x.c.P2PPort, link.PeerPort)
	if rank := t.Port - x.c.BasePort; x.c.Ranks > 1 && x.c.BasePort > 0 && rank >= 0 && rank < x.c.Ranks {
		port += rank
	}
	return port
}

// sourceOf returns the server from which a leg pulls cached blocks; nil is none.
func (x *ClientRequest) sourceOf(at *Target) object {
	s := x.r.Source
	if s == nil || at != nil && at.Host == s.Host && at.Port == s.Port {
		return nil // a server already has its own blocks
	}
	return connector.Peer(x.uuid("kv source"), s.Host, x.peerPort(s))
}
