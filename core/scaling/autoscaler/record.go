package autoscaler

import "github.com/windtunnel/windtunnel/core/record"

// Details are what the record says of a decision about the number of a Deployment's servers.
func (e Effect) Details(deployment string) record.Details {
	return record.Details{record.D("deployment", deployment), record.D("from", e.From), record.D("to", e.To),
		record.D("by", e.By), record.D("reason", e.Why)}
}
