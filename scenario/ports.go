package scenario

import "fmt"

// Ports are ports of 127.0.0.1 on which a live run listens, so that others, such
// as a Prometheus, find its parts. What is left out is a free port, or with
// --keep the well-known one. Flags count before them.
type Ports struct {
	// Envoy, for clients.
	Gateway int `json:"gateway" min:"1" max:"65535"`
	// Envoy's own pages, with its metrics at /stats/prometheus.
	EnvoyAdmin int `json:"envoyAdmin" min:"1" max:"65535"`
	// The first endpoint picker's ext_proc; the next ones, of the replicas and of further pools, are on the ports that
	// follow. So it is with health and metrics.
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

// checkPorts tells two parts that would listen on one port.
func (s *Scenario) checkPorts() Problems {
	p := &s.Ports
	servers, sidecars, pickers, managers := 0, 0, 0, 0
	for i := range s.Pools {
		servers, pickers, managers = servers+s.Pools[i].Servers(), pickers+s.Pools[i].EPP.Replicas,
			managers+countTrue(s.Pools[i].KVManager)
		if s.Pools[i].Sidecar != NoSidecar {
			sidecars += s.Pools[i].Decoders()
		}
	}
	taken := map[int]string{}
	var out Problems
	for _, part := range []struct {
		field    string
		first, n int
	}{{"gateway", p.Gateway, 1}, {"envoyAdmin", p.EnvoyAdmin, 1}, {"extProc", p.ExtProc, pickers},
		{"health", p.Health, pickers}, {"metrics", p.Metrics, pickers}, {"servers", p.Servers, servers},
		{"sidecars", p.Sidecars, sidecars}, {"kvManager", p.KVManager, managers},
		{"kvManagerEvents", p.KVManagerEvents, managers}} {
		for k := range part.n {
			port := part.first + k
			switch other, twice := taken[port]; {
			case part.first == 0:
			case port > 65535:
				out = append(out, s.problem("ports."+part.field,
					fmt.Sprintf("%d, and there are %d", part.first, part.n), "a port with enough others behind it"))
			case twice:
				out = append(out, s.problem("ports."+part.field, fmt.Sprintf("port %d is also one of %s", port, other),
					"ports of its own for each part"))
			default:
				taken[port] = part.field
				continue
			}
			break
		}
	}
	return out
}
