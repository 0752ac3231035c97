package deployment

import (
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/record"
)

// StartEngine and KillEngine are the engine's controls for the start of a server's process, with empty caches, and for
// its kill.
var (
	StartEngine = engine.Control{Op: engine.OpRestart}
	KillEngine  = engine.Control{Op: engine.OpCrash}
)

// Recorded returns the step, "" for none, and its details for an effect on a Deployment's server. cut is the number of
// requests that broke off, for Killed.
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
