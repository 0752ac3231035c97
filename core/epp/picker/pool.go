package picker

import (
	"sort"

	"github.com/windtunnel/windtunnel/core/machine"
)

// maxDeparted bounds how many names of departed endpoints a Pool keeps.
const maxDeparted = 4096

// Pool is the set of endpoints with their newest metrics. It gives every endpoint name a slot. It is not safe for
// concurrent use.
type Pool struct {
	view *View
	slots
	onGone   []func(slot int, forget bool)
	watching []*changes // receivers of changes
}

// slots are the slots of endpoints, as recordings have them.
type slots struct {
	Slots    map[string]int32 `json:"slots"`              // by name, departed ones too
	Departed []string         `json:"departed,omitempty"` // names that left, oldest first
	Free     []int32          `json:"free,omitempty"`
	Next     int32            `json:"next"`
}

// NewPool returns an empty pool.
func NewPool() *Pool {
	return &Pool{view: &View{}, slots: slots{Slots: map[string]int32{}}}
}

// OnGone registers a function to call when an endpoint leaves. With forget, another endpoint is about to get its slot,
// so that all state about it must go. Without, the endpoint may come back under the same name and find its prefix
// history, but not its requests in flight.
func (p *Pool) OnGone(f func(slot int, forget bool)) { p.onGone = append(p.onGone, f) }

// View returns the pool as of now. Its endpoints and their places never change, even if the pool's do. Their metrics
// are always the newest; only the pool's goroutine may read them.
func (p *Pool) View() *View { return p.view }

// Set replaces the endpoints. Of several with one name the last counts. Endpoints with unchanged name and address keep
// their metrics. The order is by name.
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

// enter returns a name's old slot, or a new one.
func (p *Pool) enter(id string) int32 {
	if s, ok := p.Slots[id]; ok {
		for i, d := range p.Departed {
			if d == id {
				p.Departed = append(p.Departed[:i], p.Departed[i+1:]...)
				break
			}
		}
		return s
	}
	var s int32
	if n := len(p.Free); n > 0 {
		s, p.Free = p.Free[n-1], p.Free[:n-1]
	} else {
		s = p.Next
		p.Next++
	}
	p.Slots[id] = s
	return s
}

func (p *Pool) leave(id string) {
	slot := p.Slots[id]
	for _, f := range p.onGone {
		f(int(slot), false)
	}
	p.Departed = append(p.Departed, id)
	if len(p.Departed) > maxDeparted {
		oldest := p.Departed[0]
		p.Departed = p.Departed[1:]
		slot := p.Slots[oldest]
		for _, f := range p.onGone {
			f(int(slot), true)
		}
		delete(p.Slots, oldest)
		p.Free = append(p.Free, slot)
	}
}

// Update sets the metrics of endpoint number i of the current View.
func (p *Pool) Update(now machine.Time, i int, m Metrics) {
	s := &p.view.States[i]
	s.Metrics, s.UpdatedAt, s.Scraped = m, now, true
	p.noteChange(i)
}

func (p *Pool) noteChange(i int) {
	for _, n := range p.watching {
		n.add(i)
	}
}

// watch returns the set of endpoints that change from now on.
func (p *Pool) watch() *changes {
	n := &changes{all: true}
	p.watching = append(p.watching, n)
	return n
}

// Announce replaces the state that document 002's control plane reports of endpoints, by ID. Scrapes do not bring it.
func (p *Pool) Announce(of map[string]*Announced) {
	for i := range p.view.States {
		s := &p.view.States[i]
		s.Announced = of[s.id]
		p.noteChange(i)
	}
}

// Expire replaces the metrics of endpoint number i by those that are not too old (document 003: 30 s). Without any
// known metrics the endpoint counts as never scraped.
func (p *Pool) Expire(i int, left Metrics, known bool) {
	s := &p.view.States[i]
	s.Metrics, s.Scraped = left, s.Scraped && known
	p.noteChange(i)
}
