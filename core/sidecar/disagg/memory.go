package disagg

import (
	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Engines holds the engines of prefill servers by host:port, so that the bootstrap server of each is asked once.
type Engines = bounded.Store[string, []connector.Engine]

// NewEngines returns an empty store.
func NewEngines() *Engines {
	return bounded.New[string, []connector.Engine](bounded.Limits{Entries: 1024}, nil)
}
