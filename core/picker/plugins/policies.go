package plugins

import (
	"github.com/windtunnel/windtunnel/core/picker"
)

// policy is a flow-control policy: its parameters, which FlowControl reads
// when the queue is configured.
type policy struct {
	named
	params picker.Params
}

func newPolicy(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	return &policy{base("policy", name), p}, nil
}
