package disagg

import (
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/connector"
)

// maxEngines is how many prefill servers are remembered.
const maxEngines = 1024

// Engines remembers the engines of prefill servers, so that the bootstrap server
// of each is asked once.
type Engines struct {
	by *simplelru.LRU[string, []connector.Engine]
}

// NewEngines is an empty memory.
func NewEngines() *Engines {
	by, err := simplelru.NewLRU[string, []connector.Engine](maxEngines, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Engines{by}
}

func (e *Engines) get(server string) ([]connector.Engine, bool) { return e.by.Get(server) }
func (e *Engines) put(server string, v ...connector.Engine)     { e.by.Add(server, v) }

// Forget drops what is known of a server, which may have started anew.
func (e *Engines) Forget(server string) { e.by.Remove(server) }
