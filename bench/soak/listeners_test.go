package soak

import (
	"strings"

	"github.com/windtunnel/windtunnel/live/stack"
)

// listener is an address at which a part of a stack listens.
type listener struct {
	// Part is the name of the listening part: gateway, gateway-admin, body-based-router, epp, epp-health,
	// epp-metrics, kv-manager, kv-events, modelserver, sidecar or side-channel. Server names the model server of the
	// last three.
	Part, Server string
	// Address is ip:port.
	Address string
}

// listeners returns all addresses that a program on this machine can reach, in the order of a request's way.
func listeners(s *stack.Stack) (out []listener) {
	add := func(part, server, address string) {
		if _, after, ok := strings.Cut(address, "://"); ok {
			address = after
		}
		if address != "" {
			out = append(out, listener{part, server, address})
		}
	}
	add("gateway", "", s.Gateway.Addr)
	add("gateway-admin", "", s.Gateway.AdminAddr)
	if s.Router != nil {
		add("body-based-router", "", s.Router.Addr())
	}
	add("kv-manager", "", s.Addresses().KVManager)
	for _, p := range s.Pools {
		for _, x := range p.Pickers {
			k := x.Server()
			add("epp", "", k.Addr())
			add("epp-health", "", k.HealthAddr())
			add("epp-metrics", "", k.MetricsAddr())
		}
		for i, x := range p.Pods {
			if x.Sidecar != nil {
				add("sidecar", p.Names[i], x.Sidecar.Addr())
			}
		}
		for i, x := range p.Fleet.Servers() {
			add("modelserver", p.Names[i], x.Address())
			add("side-channel", p.Names[i], x.MeetingAddress())
		}
		for _, at := range p.KVEvents() {
			add("kv-events", "", at)
		}
	}
	return out
}
