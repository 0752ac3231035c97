package dropin

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// joined reports whether the offloading connector runs beside NIXL, so that peers ask for cached blocks at a port of
// its own (vLLM: MultiConnector).
func (r *Result) joined() bool {
	return r.KVTransfer != nil && strings.HasPrefix(strings.ToLower(r.KVTransfer.Connector), "multi")
}

// meet sets where other servers find this server's caches: at the connector's usual port, or at the port in the
// configuration's kv_port or in the variable VLLM_MOONCAKE_BOOTSTRAP_PORT.
func (r *Result) meet(so *modelserver.ServerOptions, rank int) {
	if r.KVTransfer == nil {
		return
	}
	so.KVRole = r.KVTransfer.Role
	port := 0
	switch profile := connector.ProfileOf(r.KVTransfer.Connector); {
	case profile.Name == connector.Mooncake.Name:
		port = cmp.Or(r.KVTransfer.Port, r.BootstrapPort)
	case profile.MeetingPort != 0:
		port = r.KVTransfer.Port
	case strings.HasPrefix(strings.ToLower(r.KVTransfer.Connector), "moriio"):
		port = cmp.Or(r.KVTransfer.Port, connector.DefaultMoRIIOHandshakePort)
	case r.joined():
		port = cmp.Or(r.KVTransfer.Port, link.PeerPort)
	}
	if port != 0 {
		host, _, _ := net.SplitHostPort(so.Listen)
		so.Meeting = net.JoinHostPort(host, strconv.Itoa(port+rank))
	}
}
