package picker

import (
	"sort"

	"github.com/windtunnel/windtunnel/core/machine"
)

// maxDeparted bounds how many names of departed endpoints a Pool remembers.
const maxDeparted = 4096

// Pool is the set of endpoints with their newest figures. It hands out Views
// and gives every endpoint name a slot. It belongs to one goroutine.
type Pool struct {
	view     *View
	slots    map[string]int32 // name -> slot, departed names too
	free     []int32
	departed []string // names that left, oldest first
	next     int32
	onGone   []func(slot int, forget bool)
}

// NewPool is an empty pool.
func NewPool() *Pool {
	return &Pool{view: &View{}, slots: map[string]int32{}}
}

// OnGone registers what runs when an endpoint leaves. With forget its slot is
// about to be reused, so every trace of it must go; without, it may come back
// under the same name and find its prefix history (but not its requests in
// flight).
func (p *Pool) OnGone(f func(slot int, forget bool)) { p.onGone = append(p.onGone, f) }

// View is the pool as of now. It does not change afterwards.
func (p *Pool) View() *View { return p.view }

// Slots is one more than the largest slot in use.
func (p *Pool) Slots() int { return int(p.next) }

// Set replaces the endpoints. Of several with one name the last counts. Figures
// stay with endpoints whose name and address are unchanged. Order is by name.
func (p *Pool) Set(endpoints []*Endpoint) {
	byID := make(map[string]*Endpoint, len(endpoints))
	for _, e := range endpoints {
		byID[e.id] = e
	}
	old := make(map[string]*State, len(p.view.States))
	for i := range p.view.States {
		old[p.view.States[i].id] = &p.view.States[i]
	}
	gone := make([]string, 0)
	for id := range old {
		if byID[id] == nil {
			gone = append(gone, id)
		}
	}
	sort.Strings(gone)
	for _, id := range gone {
		p.leave(id)
	}
	states := make([]State, 0, len(byID))
	for id, e := range byID {
		s := State{Endpoint: e}
		if was := old[id]; was != nil {
			if was.hostPort == e.hostPort {
				s = *was
				s.Endpoint = e
			}
			e.slot = was.slot
		} else {
			e.slot = -1
		}
		states = append(states, s)
	}
	sort.Slice(states, func(i, j int) bool { return states[i].id < states[j].id })
	for i := range states {
		if e := states[i].Endpoint; e.slot < 0 {
			e.slot = p.enter(e.id)
		}
	}
	p.view = &View{States: states}
}

// enter gives a name its slot back, or a new one.
func (p *Pool) enter(id string) int32 {
	if s, ok := p.slots[id]; ok {
		for i, d := range p.departed {
			if d == id {
				p.departed = append(p.departed[:i], p.departed[i+1:]...)
				break
			}
		}
		return s
	}
	var s int32
	if n := len(p.free); n > 0 {
		s, p.free = p.free[n-1], p.free[:n-1]
	} else {
		s = p.next
		p.next++
	}
	p.slots[id] = s
	return s
}

func (p *Pool) leave(id string) {
	slot := p.slots[id]
	for _, f := range p.onGone {
		f(int(slot), false)
	}
	p.departed = append(p.departed, id)
	if len(p.departed) > maxDeparted {
		oldest := p.departed[0]
		p.departed = p.departed[1:]
		slot := p.slots[oldest]
		for _, f := range p.onGone {
			f(int(slot), true)
		}
		delete(p.slots, oldest)
		p.free = append(p.free, slot)
	}
}

// Update brings figures of endpoints: change is called with a copy of each
// state that a scrape concerns and the new View is handed out at once. Indexes
// are those of the current View.
func (p *Pool) Update(now machine.Time, indexes []int, change func(i int, s *State)) {
	states := append([]State(nil), p.view.States...)
	for _, i := range indexes {
		if i < 0 || i >= len(states) {
			continue
		}
		change(i, &states[i])
		states[i].UpdatedAt = now
		states[i].Scraped = true
	}
	p.view = &View{States: states}
}

// Announce replaces what document 002's control plane says of the endpoints,
// by ID. It is no figure of a scrape.
func (p *Pool) Announce(serving map[string]*Serving) {
	states := append([]State(nil), p.view.States...)
	for i := range states {
		states[i].Serving = serving[states[i].id]
	}
	p.view = &View{States: states}
}

// Expire says that an endpoint's figures are too old to be believed (document
// 003: 30 s): it then counts as never scraped. change, which may be nil, takes
// the figures out.
func (p *Pool) Expire(indexes []int, change func(i int, s *State)) {
	states := append([]State(nil), p.view.States...)
	for _, i := range indexes {
		if i >= 0 && i < len(states) {
			if change != nil {
				change(i, &states[i])
			}
			states[i].Scraped = false
		}
	}
	p.view = &View{States: states}
}
