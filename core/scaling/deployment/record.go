package deployment

import (
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Begin and End are what an engine is told as its server's process begins, with empty caches, and
// as it is killed.
var (
	Begin = engine.Control{Op: engine.OpRestart}
	End   = engine.Control{Op: engine.OpCrash}
)

// Recorded returns what the record says of an effect on a Deployment's server: a step, "" for none, and its details.
// cut is how many requests broke off, of Killed.
func (e Effect) Recorded(deployment, server string, cut int) (step record.Step, details record.Details) {
	details = record.Details{record.D("name", server), record.D("deployment", deployment)}
	switch e.Kind {
	case Started:
		return record.ServerStarted, details
	case Joined:
		return record.ServerReady, details
	case Left:
		if e.Was {
			return record.ServerLeaving, details
		}
	case Ended:
		return record.ServerGone, details
	case Killed:
		return record.ServerGone, append(details, record.D("reason", "the grace period is over"), record.D("cut", cut))
	}
	return "", nil
}
