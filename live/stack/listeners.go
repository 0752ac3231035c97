package stack

import "strings"

// Listener is an address at which a part of a stack listens: all that somebody
// on this machine can reach.
type Listener struct {
	// Part is what listens there: gateway, gateway-admin, epp, epp-health,
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
	if s.Picker != nil {
		add("epp", "", s.Picker.Addr())
		add("epp-health", "", s.Picker.HealthAddr())
		add("epp-metrics", "", s.Picker.MetricsAddr())
	}
	for i, x := range s.Sidecars {
		add("sidecar", s.Names[i], x.Addr())
	}
	if s.Fleet != nil {
		for i, x := range s.Fleet.Servers() {
			add("modelserver", s.Names[i], x.Address())
			add("side-channel", s.Names[i], x.MeetingAddress())
			if s.kv != nil && s.kv.list[i] != nil {
				add("kv-events", s.Names[i], s.kv.list[i].Endpoint())
			}
		}
	}
	if s.kv != nil && s.kv.manager != nil {
		add("kv-manager", "", s.kv.manager.HTTPAddress())
		add("kv-manager-events", "", s.kv.manager.ZMQEndpoint())
	}
	return out
}
