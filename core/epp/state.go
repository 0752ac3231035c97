package epp

import (
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

// State is what a Machine knows besides its configuration, in a form that JSON
// can carry: what Load needs so that another one of the same configuration goes
// on from there.
type State struct {
	At      machine.Time `json:"at"`
	Serial  uint64       `json:"serial"`
	Picker  picker.Saved `json:"picker"`
	Scrapes []scrapes    `json:"scrapes,omitempty"`
}

// scrapes are what the data sources know of an endpoint.
type scrapes struct {
	Endpoint string        `json:"endpoint"`
	Sources  []savedSource `json:"sources"`
}

type savedSource struct {
	Current bool         `json:"current,omitempty"`
	Last    machine.Time `json:"last"`
}

// Save copies the Machine's state, in its turn.
func (m *Machine) Save() *State {
	s := &State{At: m.now, Serial: m.serial, Picker: m.p.Save()}
	for _, id := range slices.Sorted(maps.Keys(m.scraping.targets)) {
		x := scrapes{Endpoint: id}
		for _, src := range m.scraping.targets[id].sources {
			x.Sources = append(x.Sources, savedSource{src.current, src.last})
		}
		s.Scrapes = append(s.Scrapes, x)
	}
	return s
}

// Load takes a state over, before the first message. It tells of each request
// that was not over. Everything is scraped at once.
func (m *Machine) Load(s *State, fx *Effects, tell func(*Request)) error {
	m.fx, m.now, m.serial = fx, s.At, s.Serial
	defer func() { m.fx = nil }()
	if err := m.p.Load(&s.Picker); err != nil {
		return err
	}
	m.follow()
	for _, x := range s.Scrapes {
		t := m.scraping.targets[x.Endpoint]
		for i := 0; t != nil && i < min(len(x.Sources), len(t.sources)); i++ {
			t.sources[i].current, t.sources[i].last = x.Sources[i].Current, x.Sources[i].Last
		}
	}
	return nil
}

// link notes a request that is not over.
func (m *Machine) link(r *Request) {
	if r.linked {
		return
	}
	r.linked, r.prev = true, m.flying
	if m.flying != nil {
		m.flying.next = r
	}
	m.flying = r
}

// unlink forgets one that is.
func (m *Machine) unlink(r *Request) {
	if !r.linked {
		return
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		m.flying = r.prev
	}
	if r.prev != nil {
		r.prev.next = r.next
	}
	r.linked, r.prev, r.next = false, nil, nil
}
