package deployment

import (
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
)

// Begin and End are what an engine is told as its server's process begins, with empty caches, and
// as it is killed.
var (
	Begin = engine.Control{Op: engine.OpRestart}
	End   = engine.Control{Op: engine.OpCrash}
)

// Details are what the record says of a Deployment's server that comes or goes.
func Details(deployment, server string, more ...flow.Detail) flow.Details {
	return append(flow.Details{flow.D("name", server), flow.D("deployment", deployment)}, more...)
}
