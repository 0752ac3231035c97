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
			if d := p.DeploymentOf(n); d != nil && n == d.First {
				out[i].Groups = append(out[i].Groups,
					report.Group{Name: d.Group, Prefill: d.Prefills, DeploymentInfo: deploymentInfo(p, d)})
			} else if n == 0 { // external servers
				out[i].Groups = []report.Group{{}}
			}
			g := &out[i].Groups[len(out[i].Groups)-1]
			g.Endpoints = append(g.Endpoints, endpoint)
		}
	}
	return out
}

// deploymentInfo returns a deployment's data for a report.
func deploymentInfo(p *scenario.Pool, d *scenario.Deployment) report.DeploymentInfo {
	price, gpus, accelerator := p.Cost(d)
	return report.DeploymentInfo{Deployment: d.Name, Replicas: d.Replicas, Lives: p.Lives(), GPUs: gpus,
		Accelerator: accelerator, PerGPUHour: price.PerGPUHour, Source: price.Source}
}
