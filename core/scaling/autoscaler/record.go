package autoscaler

import "github.com/windtunnel/windtunnel/core/record"

// Details returns the details of a decision about the number of a Deployment's servers, for the record.
func (e Effect) Details(deployment string) record.Details {
	return record.Details{record.D("deployment", deployment), record.D("from", e.From), record.D("to", e.To),
		record.D("by", e.By), record.D("reason", e.Why)}
}
