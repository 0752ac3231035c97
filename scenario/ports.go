package scenario

import "fmt"

// Ports are the ports of 127.0.0.1 on which a live run listens, so that other programs, such as a Prometheus, find its
// parts. A part without a port uses a free one, or with --keep the well-known one. Flags override these ports.
type Ports struct {
	// Envoy, for clients.
	Gateway int `json:"gateway" min:"1" max:"65535"`
	// Envoy's own pages, with its metrics at /stats/prometheus.
	EnvoyAdmin int `json:"envoyAdmin" min:"1" max:"65535"`
	// The first endpoint picker's ext_proc. The next ones, of the replicas and of further pools, are on the ports that
	// follow. The same holds for health and metrics.
	ExtProc int `json:"extProc" min:"1" max:"65535"`
	// The first endpoint picker's gRPC health.
	Health int `json:"health" min:"1" max:"65535"`
	// The first endpoint picker's metrics.
	Metrics int `json:"metrics" min:"1" max:"65535"`
	// The first model server; the next ones are on the ports that follow.
	Servers int `json:"servers" min:"1" max:"65000"`
	// The first sidecar; the next ones are on the ports that follow.
	Sidecars int `json:"sidecars" min:"1" max:"65000"`
	// The first KV-Cache Manager's HTTP; those of further pools are on the ports that follow.
	KVManager int `json:"kvManager" min:"1" max:"65535"`
	// Where the first KV-Cache Manager takes events.
	KVManagerEvents int `json:"kvManagerEvents" min:"1" max:"65535"`
}

// checkPorts reports parts that would listen on the same port.
func (s *checker) checkPorts() {
	p, all := &s.Ports, planned{}
	for i := range s.Pools {
		all.add(&s.Pools[i])
	}
	taken := map[int]string{}
	for _, part := range []struct {
		field    string
		first, n int
	}{{"gateway", p.Gateway, 1}, {"envoyAdmin", p.EnvoyAdmin, 1}, {"extProc", p.ExtProc, all.pickers},
		{"health", p.Health, all.pickers}, {"metrics", p.Metrics, all.pickers}, {"servers", p.Servers, all.servers},
		{"sidecars", p.Sidecars, all.sidecars}, {"kvManager", p.KVManager, all.managers},
		{"kvManagerEvents", p.KVManagerEvents, all.managers}} {
		for k := range part.n {
			port := part.first + k
			switch other, twice := taken[port]; {
			case part.first == 0:
			case port > 65535:
				s.bad("ports."+part.field, fmt.Sprintf("%d, and there are %d", part.first, part.n),
					"a port with enough ports after it")
			case twice:
				s.bad("ports."+part.field, fmt.Sprintf("port %d is also one of %s", port, other),
					"ports of its own for each part")
			default:
				taken[port] = part.field
				continue
			}
			break
		}
	}
}
