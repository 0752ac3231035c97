package disagg

import "github.com/hashicorp/golang-lru/v2/simplelru"

// Engine is one data-parallel rank of a prefill server, as a mooncake bootstrap
// server tells of it.
type Engine struct{ Rank, ID string }

// maxEngines is how many prefill servers are remembered.
const maxEngines = 1024

// Engines remembers the engines of prefill servers, so that the bootstrap server
// of each is asked once.
type Engines struct {
	by *simplelru.LRU[string, []Engine]
}

// NewEngines is an empty memory.
func NewEngines() *Engines {
	by, err := simplelru.NewLRU[string, []Engine](maxEngines, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Engines{by}
}

func (e *Engines) get(server string) ([]Engine, bool) { return e.by.Get(server) }
func (e *Engines) put(server string, v ...Engine)     { e.by.Add(server, v) }

// Forget drops what is known of a server, which may have started anew.
func (e *Engines) Forget(server string) { e.by.Remove(server) }
