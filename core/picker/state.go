package picker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Saved is what a picker knows besides its configuration, in a form that JSON
// can carry: what Load needs so that another one of the same configuration goes
// on from there.
type Saved struct {
	Commits uint64        `json:"commits"`
	Pool    SavedPool     `json:"pool"`
	Objects Objects       `json:"objects"`
	Plugins []SavedPlugin `json:"plugins,omitempty"`
}

// SavedPool is a Pool, with the slots of endpoints that may come back.
type SavedPool struct {
	Endpoints []SavedEndpoint  `json:"endpoints"`
	Slots     map[string]int32 `json:"slots"`
	Departed  []string         `json:"departed,omitempty"`
	Free      []int32          `json:"free,omitempty"`
	Next      int32            `json:"next"`
}

// SavedEndpoint is an endpoint with its figures.
type SavedEndpoint struct {
	Namespace string                   `json:"namespace"`
	Name      string                   `json:"name"`
	Address   string                   `json:"address"`
	Port      string                   `json:"port"`
	Labels    map[string]string        `json:"labels,omitempty"`
	Rank      int                      `json:"rank,omitempty"`
	Waiting   int64                    `json:"waiting,omitempty"`
	Running   int64                    `json:"running,omitempty"`
	KVUsage   machine.Float            `json:"kvUsage,omitempty"`
	BlockSize int32                    `json:"blockSize,omitempty"`
	Blocks    int32                    `json:"blocks,omitempty"`
	LoRA      *LoRA                    `json:"lora,omitempty"`
	Custom    map[string]machine.Float `json:"custom,omitempty"`
	UpdatedAt machine.Time             `json:"updatedAt"`
	Scraped   bool                     `json:"scraped"`
	Serving   *Serving                 `json:"serving,omitempty"`
}

// SavedPlugin is what one plug-in knows.
type SavedPlugin struct {
	Name  string          `json:"name"`
	State json.RawMessage `json:"state"`
	saved any
}

// MarshalJSON writes what SaveState returned, later than it did.
func (s SavedPlugin) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"name": s.Name, "state": s.saved})
}

// Save copies the picker's state.
func (p *Picker) Save() Saved {
	s := Saved{Commits: p.seq, Pool: p.pool.save(), Objects: p.objects}
	for _, pl := range p.plugins {
		if x, ok := pl.(StateKeeper); ok {
			s.Plugins = append(s.Plugins, SavedPlugin{Name: pl.Name(), saved: x.SaveState()})
		}
	}
	return s
}

// Load takes a state over, before the first request.
func (p *Picker) Load(s *Saved) error {
	p.seq, p.objects = s.Commits, s.Objects
	p.pool.load(&s.Pool)
	for i := range s.Plugins {
		name := s.Plugins[i].Name
		x, ok := p.Plugin(name).(StateKeeper)
		if !ok {
			return fmt.Errorf("plugin %s keeps no state, and there is one", name)
		}
		if err := x.LoadState(s.Plugins[i].State); err != nil {
			return fmt.Errorf("plugin %s: its state: %w", name, err)
		}
	}
	return nil
}

func (p *Pool) save() SavedPool {
	s := SavedPool{Slots: maps.Clone(p.slots), Departed: slices.Clone(p.departed), Free: slices.Clone(p.free), Next: p.next}
	for i := range p.view.States {
		st := &p.view.States[i]
		e := SavedEndpoint{Namespace: st.Namespace, Name: st.Name, Address: st.Address, Port: st.Port, Labels: st.Labels, Rank: st.Rank,
			Waiting: st.Waiting, Running: st.Running, KVUsage: machine.Float(st.KVUsage), BlockSize: st.CacheBlockSize, Blocks: st.CacheBlocks, LoRA: st.LoRA,
			UpdatedAt: st.UpdatedAt, Scraped: st.Scraped, Serving: st.Serving}
		if st.Custom != nil {
			e.Custom = make(map[string]machine.Float, len(st.Custom))
			for k, v := range st.Custom {
				e.Custom[k] = machine.Float(v)
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func (p *Pool) load(s *SavedPool) {
	p.slots, p.departed, p.free, p.next = s.Slots, s.Departed, s.Free, s.Next
	if p.slots == nil {
		p.slots = map[string]int32{}
	}
	v := &View{}
	for i := range s.Endpoints {
		x := &s.Endpoints[i]
		e := NewEndpoint(x.Namespace, x.Name, x.Address, x.Port, x.Labels)
		e.Rank, e.slot = x.Rank, p.slots[e.id]
		m := Metrics{Waiting: x.Waiting, Running: x.Running, KVUsage: float64(x.KVUsage), CacheBlockSize: x.BlockSize, CacheBlocks: x.Blocks, LoRA: x.LoRA}
		if x.Custom != nil {
			m.Custom = make(map[string]float64, len(x.Custom))
			for k, f := range x.Custom {
				m.Custom[k] = float64(f)
			}
		}
		v.States = append(v.States, State{Endpoint: e, Metrics: m, UpdatedAt: x.UpdatedAt, Scraped: x.Scraped, Serving: x.Serving})
	}
	p.view = v
}
