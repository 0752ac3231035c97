package picker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Saved is a picker's state without its configuration, as JSON. Load continues from it in another picker of the same
// configuration.
type Saved struct {
	Commits uint64        `json:"commits"`
	Pool    SavedPool     `json:"pool"`
	Objects Objects       `json:"objects"`
	Plugins []SavedPlugin `json:"plugins,omitempty"`
}

// SavedPool is a Pool, with the slots of endpoints that may come back.
type SavedPool struct {
	Endpoints []SavedEndpoint `json:"endpoints"`
	slots
}

// SavedEndpoint is an endpoint with its metrics.
type SavedEndpoint struct {
	Identity
	Waiting   int64                    `json:"waiting,omitempty"`
	Running   int64                    `json:"running,omitempty"`
	KVUsage   machine.Float            `json:"kvUsage,omitempty"`
	BlockSize int32                    `json:"blockSize,omitempty"`
	Blocks    int32                    `json:"blocks,omitempty"`
	LoRA      *LoRA                    `json:"lora,omitempty"`
	Custom    map[string]machine.Float `json:"custom,omitempty"`
	UpdatedAt machine.Time             `json:"updatedAt"`
	Scraped   bool                     `json:"scraped"`
	Announced *Announced               `json:"serving,omitempty"`
}

// SavedPlugin is one plug-in's state.
type SavedPlugin struct {
	Name  string          `json:"name"`
	Type  string          `json:"type"`
	State json.RawMessage `json:"state"`
	saved any
}

// MarshalJSON encodes the plug-in's state when it is written, not when it was saved.
func (s SavedPlugin) MarshalJSON() ([]byte, error) {
	if s.saved == nil {
		s.saved = s.State
	}
	return json.Marshal(map[string]any{"name": s.Name, "type": s.Type, "state": s.saved})
}

// SavedDecision is a decision in force, with what is needed until its release.
type SavedDecision struct {
	At machine.Time `json:"at"`
	// Now states that Profiles refer to endpoints by their present places in the pool. Otherwise they refer to
	// Elsewhere.
	Now       bool           `json:"now,omitempty"`
	Elsewhere []savedTarget  `json:"elsewhere,omitempty"`
	Profiles  []savedProfile `json:"profiles,omitempty"`
	Primary   int            `json:"primary"`
	Targets   []savedTarget  `json:"targets"`
	Plugins   []SavedPlugin  `json:"plugins,omitempty"`
}

type savedProfile struct {
	Name   string  `json:"name"`
	Picked []int32 `json:"picked,omitempty"`
}

type savedTarget struct {
	Identity        // without Labels and Rank
	Slot     int32  `json:"slot"`
	To       string `json:"to,omitempty"`
}

func saveTarget(e *Endpoint, to string) savedTarget {
	t := savedTarget{e.Identity, e.slot, to}
	t.Labels, t.Rank = nil, 0
	return t
}

func (t *savedTarget) endpoint() *Endpoint {
	e := t.Identity.endpoint()
	e.slot = t.Slot
	return e
}

// SaveDecision copies a decision in force.
func (p *Picker) SaveDecision(d *Decision) *SavedDecision {
	s := &SavedDecision{At: d.At, Primary: d.Primary, Now: d.View == p.pool.view}
	for _, t := range d.Targets {
		s.Targets = append(s.Targets, saveTarget(t.Endpoint, t.HostPort))
	}
	for i := range d.Profiles {
		x := savedProfile{Name: d.Profiles[i].Name}
		for _, n := range d.Profiles[i].Picked {
			if !s.Now {
				s.Elsewhere = append(s.Elsewhere, saveTarget(d.View.States[n].Endpoint, ""))
				n = int32(len(s.Elsewhere) - 1)
			}
			x.Picked = append(x.Picked, n)
		}
		s.Profiles = append(s.Profiles, x)
	}
	for _, pl := range p.plugins {
		if x, ok := pl.(DecisionKeeper); ok {
			if saved := x.SaveDecision(d); saved != nil {
				s.Plugins = append(s.Plugins, SavedPlugin{Name: pl.Name(), Type: pl.Type(), saved: saved})
			}
		}
	}
	return s
}

// LoadDecision restores a decision in force without repeating its effects. For other see Load.
func (p *Picker) LoadDecision(s *SavedDecision, r *Request, other bool) (*Decision, error) {
	d := &Decision{}
	d.reset(len(p.plugins))
	d.Request, d.View, d.At, d.Primary, d.committed = r, p.pool.view, s.At, s.Primary, true
	if !s.Now {
		d.View = &View{}
		for i := range s.Elsewhere {
			d.View.States = append(d.View.States, State{Endpoint: s.Elsewhere[i].endpoint()})
		}
	}
	for i := range s.Targets {
		d.Targets = append(d.Targets, Target{Endpoint: s.Targets[i].endpoint(), HostPort: s.Targets[i].To})
	}
	for i := range s.Profiles {
		for _, n := range s.Profiles[i].Picked {
			if n < 0 || int(n) >= len(d.View.States) {
				return nil, fmt.Errorf("profile %s chose endpoint %d of %d", s.Profiles[i].Name, n, len(d.View.States))
			}
		}
		d.run(s.Profiles[i].Name).Picked = s.Profiles[i].Picked
	}
	for i := range s.Plugins {
		x, ok := p.alike(&s.Plugins[i]).(DecisionKeeper)
		if !ok && other {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("plugin %s keeps no data for a decision, but the state has some", s.Plugins[i].Name)
		}
		if err := x.LoadDecision(d, s.Plugins[i].State); err != nil {
			return nil, fmt.Errorf("plugin %s: its data for a decision: %w", s.Plugins[i].Name, err)
		}
	}
	return d, nil
}

// SavedResponse holds the headers and metadata that hooks have set on a response.
type SavedResponse struct {
	Reported bool                      `json:"told,omitempty"`
	Set      header.List               `json:"set,omitempty"`
	Metadata map[string]map[string]any `json:"metadata,omitempty"`
	Err      *apierror.Error           `json:"error,omitempty"`
}

// Save copies the hooks' part of the response, in the picker's turn.
func (r *Response) Save() *SavedResponse {
	s := &SavedResponse{Reported: r.reported, Set: r.set, Err: r.Err}
	for name, values := range r.metadata {
		if s.Metadata == nil {
			s.Metadata = map[string]map[string]any{}
		}
		s.Metadata[name] = maps.Clone(values)
	}
	return s
}

// Load restores it.
func (r *Response) Load(s *SavedResponse) {
	r.reported, r.set, r.Err = s.Reported, slices.Clone(s.Set), s.Err
	for namespace, values := range s.Metadata {
		for key, value := range values {
			r.SetMetadata(namespace, key, value)
		}
	}
}

// Save copies the picker's state.
func (p *Picker) Save() Saved {
	s := Saved{Commits: p.seq, Pool: p.pool.save(), Objects: p.objects}
	for _, pl := range p.plugins {
		if x, ok := pl.(StateKeeper); ok {
			s.Plugins = append(s.Plugins, SavedPlugin{Name: pl.Name(), Type: pl.Type(), saved: x.SaveState()})
		}
	}
	return s
}

// alike returns the plug-in of a saved name and type, nil if there is none.
func (p *Picker) alike(s *SavedPlugin) Plugin {
	if pl := p.Plugin(s.Name); pl != nil && pl.Type() == s.Type {
		return pl
	}
	return nil
}

// Load restores a state before the first request. With other, the state is from a picker of another configuration, and
// Load skips the state of plug-ins that this picker lacks.
func (p *Picker) Load(s *Saved, other bool) error {
	p.seq, p.objects = s.Commits, s.Objects
	if err := p.pool.load(&s.Pool); err != nil {
		return err
	}
	for i := range s.Plugins {
		name := s.Plugins[i].Name
		x, ok := p.alike(&s.Plugins[i]).(StateKeeper)
		if !ok && other {
			continue
		}
		if !ok {
			return fmt.Errorf("plugin %s keeps no state, but the saved picker has one for it", name)
		}
		if err := x.LoadState(s.Plugins[i].State); err != nil {
			return fmt.Errorf("plugin %s: its state: %w", name, err)
		}
	}
	return nil
}

func (s *slots) clone() slots {
	return slots{maps.Clone(s.Slots), slices.Clone(s.Departed), slices.Clone(s.Free), s.Next}
}

func (p *Pool) save() SavedPool {
	s := SavedPool{slots: p.slots.clone()}
	for i := range p.view.States {
		st := &p.view.States[i]
		s.Endpoints = append(s.Endpoints, SavedEndpoint{Identity: st.Identity, Waiting: st.Waiting,
			Running: st.Running, KVUsage: machine.Float(st.KVUsage), BlockSize: st.CacheBlockSize,
			Blocks: st.CacheBlocks, LoRA: st.LoRA, Custom: convert[machine.Float](st.Custom),
			UpdatedAt: st.UpdatedAt, Scraped: st.Scraped, Announced: st.Announced})
	}
	return s
}

// convert copies a map with another type of values.
func convert[To, From ~float64](m map[string]From) map[string]To {
	if m == nil {
		return nil
	}
	out := make(map[string]To, len(m))
	for k, v := range m {
		out[k] = To(v)
	}
	return out
}

// maxSlots bounds the slots in a saved state.
const maxSlots = 1 << 20

func (p *Pool) load(s *SavedPool) error {
	if s.Next < 0 || s.Next > maxSlots {
		return fmt.Errorf("found %d slots; expected at most %d", s.Next, maxSlots)
	}
	for name, slot := range s.Slots {
		if slot < 0 || slot >= s.Next {
			return fmt.Errorf("endpoint %s has slot %d of %d", name, slot, s.Next)
		}
	}
	if p.slots = s.slots.clone(); p.Slots == nil {
		p.Slots = map[string]int32{}
	}
	v := &View{}
	for i := range s.Endpoints {
		x := &s.Endpoints[i]
		e := x.endpoint()
		e.slot = p.Slots[e.id]
		m := Metrics{Waiting: x.Waiting, Running: x.Running, KVUsage: float64(x.KVUsage), CacheBlockSize: x.BlockSize,
			CacheBlocks: x.Blocks, LoRA: x.LoRA, Custom: convert[float64](x.Custom)}
		v.States = append(v.States,
			State{Endpoint: e, Metrics: m, UpdatedAt: x.UpdatedAt, Scraped: x.Scraped, Announced: x.Announced})
	}
	p.view = v
	return nil
}
