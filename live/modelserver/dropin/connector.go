package dropin

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/disagg"
	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// Connectors are vLLM's names in --kv-transfer-config, by how they begin, and
// what they are here. A MultiConnector is NIXL joined with the offloading
// connector, which has a peer port of its own.
var connectors = []struct {
	prefix  string
	profile link.Profile
}{
	{"lmcache", link.LMCache},
	{"p2pnccl", link.NIXLv1}, {"pynccl", link.NIXLv1},
	{"mooncake", link.Mooncake},
	{"offloading", link.Offloading},
	{"sharedstorage", link.SharedStorage}, {"exampleconnector", link.SharedStorage},
	{"sglang", link.SGLang},
	{"nixl", link.NIXLv2}, {"multi", link.NIXLv2}, {"moriio", link.NIXLv2},
}

// connectorOf is the connector of a name; those that are not known are NIXL's.
func connectorOf(name string) link.Profile {
	name = strings.ToLower(name)
	if p, err := link.ProfileNamed(name); err == nil {
		return p
	}
	for _, c := range connectors {
		if strings.HasPrefix(name, c.prefix) {
			return c.profile
		}
	}
	return link.NIXLv2
}

// joined is whether the offloading connector works beside NIXL, so that peers
// ask for cached blocks.
func (r *Result) joined() bool {
	return r.KVTransfer != nil && strings.HasPrefix(strings.ToLower(r.KVTransfer.Connector), "multi")
}

// meet sets where other servers find this one's caches: at the connector's usual
// port, or at the one that the configuration's kv_port or the environment's
// VLLM_MOONCAKE_BOOTSTRAP_PORT says.
func (r *Result) meet(so *modelserver.ServerOptions, rank int) {
	if r.KVTransfer == nil {
		return
	}
	so.KVRole = r.KVTransfer.Role
	port := 0
	switch name := connectorOf(r.KVTransfer.Connector).Name; {
	case name == link.Mooncake.Name:
		port = cmp.Or(r.KVTransfer.Port, r.BootstrapPort)
	case name == link.SGLang.Name, name == link.Offloading.Name:
		port = r.KVTransfer.Port
	case strings.HasPrefix(strings.ToLower(r.KVTransfer.Connector), "moriio"):
		port = cmp.Or(r.KVTransfer.Port, disagg.DefaultMoRIIOHandshakePort)
	case r.joined():
		port = cmp.Or(r.KVTransfer.Port, link.PeerPort)
	}
	if port != 0 {
		host, _, _ := net.SplitHostPort(so.Listen)
		so.Meeting = net.JoinHostPort(host, strconv.Itoa(port+rank))
	}
}
