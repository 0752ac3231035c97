package disagg

import "github.com/hashicorp/golang-lru/v2/simplelru"

// Engine is what a mooncake bootstrap server tells.
type Engine struct {
	ID   string
	Rank int
}

// maxEngines is how many bootstrap servers are remembered.
const maxEngines = 256

// Engines remembers the engine ids of bootstrap servers.
type Engines struct {
	by *simplelru.LRU[string, Engine]
}

// NewEngines is an empty memory.
func NewEngines() *Engines {
	by, err := simplelru.NewLRU[string, Engine](maxEngines, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Engines{by}
}

func (e *Engines) get(server string) (Engine, bool) { return e.by.Get(server) }
func (e *Engines) put(server string, v Engine)      { e.by.Add(server, v) }

// Forget drops what is known of a server, which may have started anew.
func (e *Engines) Forget(server string) { e.by.Remove(server) }
