package disagg

import (
	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Engines maps a prefill server's host:port to its engines, so that the sidecar asks each bootstrap server once.
type Engines = bounded.Store[string, []connector.Engine]

// NewEngines returns an empty store of bounded size.
func NewEngines() *Engines {
	return bounded.New[string, []connector.Engine](bounded.Limits{Entries: 1024}, nil)
}
