package stack

import "strings"

// Listener is an address at which a part of a stack listens: all that somebody
// on this machine can reach.
type Listener struct {
	// Part is what listens there: gateway, gateway-admin, body-based-router, epp, epp-health,
	// epp-metrics, kv-manager, kv-manager-events, and with the name of its server
	// modelserver, sidecar, side-channel and kv-events.
	Part, Server string
	// Address is ip:port.
	Address string
}

// Listeners are all of them, from the client's end.
func (s *Stack) Listeners() []Listener {
	var out []Listener
	add := func(part, server, address string) {
		if _, after, ok := strings.Cut(address, "://"); ok {
			address = after
		}
		if address != "" {
			out = append(out, Listener{part, server, address})
		}
	}
	add("gateway", "", s.Gateway.Addr)
	add("gateway-admin", "", s.Gateway.AdminAddr)
	if s.Router != nil {
		add("body-based-router", "", s.Router.Addr())
	}
	for _, p := range s.Pools {
		for _, k := range p.Pickers {
			add("epp", "", k.Addr())
			add("epp-health", "", k.HealthAddr())
			add("epp-metrics", "", k.MetricsAddr())
		}
		for i, x := range p.Sidecars {
			add("sidecar", p.Names[i], x.Addr())
		}
		if p.Fleet != nil {
			for i, x := range p.Fleet.Servers() {
				add("modelserver", p.Names[i], x.Address())
				add("side-channel", p.Names[i], x.MeetingAddress())
				if p.kv != nil && p.kv.list[i] != nil {
					add("kv-events", p.Names[i], p.kv.list[i].Endpoint())
				}
			}
		}
		if p.kv != nil && p.kv.manager != nil {
			add("kv-manager", "", p.kv.manager.HTTPAddress())
			add("kv-manager-events", "", p.kv.manager.ZMQEndpoint())
		}
	}
	return out
}
