package search

import (
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// Virtual returns a function with the addresses of a scenario's servers in virtual time.
func Virtual(s *scenario.Scenario) func(pool int) []string {
	return func(pool int) []string { return virtual.Endpoints(pool, &s.Pools[pool]) }
}

// Pools returns the scenario's pools in the form of a report, with the addresses of their servers.
func Pools(s *scenario.Scenario, endpoints func(pool int) []string) []report.Pool {
	out := make([]report.Pool, len(s.Pools))
	for i := range s.Pools {
		p := &s.Pools[i]
		out[i].Name = p.Name
		for n := 0; n < p.EPP.Replicas && p.EPP.Replicas > 1; n++ {
			out[i].Pickers = append(out[i].Pickers, p.PickerName(n))
		}
		for n, endpoint := range endpoints(i) {
			name, prefill := p.GroupName(n), p.Servers() > 0 && p.Prefills(n)
			if k := len(out[i].Groups); k == 0 || out[i].Groups[k-1].Name != name ||
				out[i].Groups[k-1].Prefill != prefill {
				out[i].Groups = append(out[i].Groups, report.Group{Name: name, Prefill: prefill})
				if d := p.DeploymentOf(n); d != nil {
					price, gpus, accelerator := p.Cost(d)
					out[i].Groups[len(out[i].Groups)-1].DeploymentInfo = report.DeploymentInfo{Deployment: d.Name,
						Replicas: d.Replicas, Lives: p.Lives(), GPUs: gpus, Accelerator: accelerator,
						PerGPUHour: price.PerGPUHour, Source: price.Source}
				}
			}
			g := &out[i].Groups[len(out[i].Groups)-1]
			g.Endpoints = append(g.Endpoints, endpoint)
		}
	}
	return out
}
