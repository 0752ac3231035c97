package autoscaler

import "github.com/windtunnel/windtunnel/core/flow"

// Details are what the record says of a decision about the number of a Deployment's servers.
func (e Effect) Details(deployment string) flow.Details {
	return flow.Details{flow.D("deployment", deployment), flow.D("from", e.From), flow.D("to", e.To),
		flow.D("by", e.By), flow.D("reason", e.Why)}
}
