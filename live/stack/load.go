package stack

import "github.com/windtunnel/windtunnel/report"

// Loads measures how full all simulated model servers were until now. They must still run.
func (s *Stack) Loads() (out []report.ServerLoad) {
	for _, p := range s.Pools {
		if p.Fleet == nil {
			continue
		}
		for i, server := range p.Fleet.Servers() {
			if load, ok := server.Load(); ok && p.everThere(i) {
				out = append(out, report.ServerLoad{Pool: p.Name(), Name: p.Names[i],
					Endpoint: p.Endpoints[i],
					Role:     report.Role(p.pool.Servers[i].Role), Load: load})
			}
		}
	}
	return out
}
