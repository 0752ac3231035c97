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

// Recorded returns what the record says of an effect on a Deployment's server: a step, "" for none, and its details.
// cut is how many requests broke off, of Killed.
func (e Effect) Recorded(deployment, server string, cut int) (step flow.Step, details flow.Details) {
	details = flow.Details{flow.D("name", server), flow.D("deployment", deployment)}
	switch e.Kind {
	case Started:
		return flow.ServerStarted, details
	case Joined:
		return flow.ServerReady, details
	case Left:
		if e.Was {
			return flow.ServerLeaving, details
		}
	case Ended:
		return flow.ServerGone, details
	case Killed:
		return flow.ServerGone, append(details, flow.D("reason", "the grace period is over"), flow.D("cut", cut))
	}
	return "", nil
}
