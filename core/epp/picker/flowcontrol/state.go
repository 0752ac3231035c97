package flowcontrol

import (
	"cmp"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Saved is a Controller's state without its configuration, as JSON. Load continues from it in another Controller of the
// same configuration.
type Saved struct {
	counters
	Bands    []savedBand          `json:"bands"`
	Items    []itemState          `json:"items,omitempty"` // in order of arrival
	Programs map[string][]program `json:"programs,omitempty"`
	Loads    []Load               `json:"loads,omitempty"`
	Reclaim  reclaimState         `json:"reclaim"`
	// Reserved counts what was dispatched and is not in the loads.
	ReservedRequests int64 `json:"reservedRequests,omitempty"`
	ReservedTokens   int64 `json:"reservedTokens,omitempty"`
}

type savedBand struct {
	Priority  int          `json:"priority"`
	Declared  bool         `json:"declared,omitempty"`
	IdleSince machine.Time `json:"idleSince,omitempty"`
	Flows     []savedFlow  `json:"flows,omitempty"`
	Last      *string      `json:"last,omitempty"`    // of the round robin
	Resting   []string     `json:"resting,omitempty"` // of program-aware fairness
}

type savedFlow struct {
	ID        string       `json:"id"`
	IdleSince machine.Time `json:"idleSince,omitempty"`
}

// Save copies the Controller's state.
func (c *Controller) Save() *Saved {
	s := &Saved{counters: c.counters,
		ReservedRequests: c.pool.reservedRequests, ReservedTokens: c.pool.reservedTokens,
		Reclaim: c.reclaim.reclaimState, Loads: slices.Clone(c.pool.loads)}
	s.Reclaim.Issued, s.Reclaim.Cooling = maps.Clone(s.Reclaim.Issued), slices.Clone(s.Reclaim.Cooling)
	for _, it := range c.reclaim.outstanding {
		s.Reclaim.Outstanding = append(s.Reclaim.Outstanding, it.ID)
	}
	for _, b := range c.bands {
		x := savedBand{Priority: b.Priority, Declared: b.declared, IdleSince: b.idleSince}
		for _, f := range b.flows {
			x.Flows = append(x.Flows, savedFlow{f.id, f.idleSince})
		}
		machine.SortFunc(x.Flows, func(a, b savedFlow) int { return cmp.Compare(a.ID, b.ID) })
		switch fair := b.fair.(type) {
		case *roundRobin:
			if fair.last != nil {
				x.Last = &fair.last.id
			}
		case *programAware:
			for _, f := range fair.resting {
				x.Resting = append(x.Resting, f.id)
			}
			slices.Sort(x.Resting)
		}
		s.Bands = append(s.Bands, x)
	}
	for _, it := range c.items {
		s.Items = append(s.Items, it.itemState)
	}
	machine.SortFunc(s.Items, func(a, b itemState) int { return cmp.Compare(a.Seq, b.Seq) })
	for name, p := range c.programs {
		var list []program
		for _, q := range p.byID {
			list = append(list, *q)
		}
		machine.SortFunc(list, func(a, b program) int { return cmp.Compare(a.ID, b.ID) })
		if s.Programs == nil {
			s.Programs = map[string][]program{}
		}
		s.Programs[name] = list
	}
	return s
}

// Load restores a state before the first message.
func (c *Controller) Load(s *Saved) {
	c.counters = s.counters
	c.pool.set(s.Loads, c.Now)
	c.pool.reservedRequests, c.pool.reservedTokens = s.ReservedRequests, s.ReservedTokens
	for i := range s.Bands {
		c.loadBand(&s.Bands[i])
	}
	for name, list := range s.Programs {
		for _, p := range []int{-1, 0} { // all bands of a template may be gone
			if f := c.cfg.template(p).Fairness; f.Instance == name {
				c.newFairness(f)
			}
		}
		if c.programs[name] == nil {
			continue
		}
		for _, q := range list {
			q.weighed = q.Dispatched > 0
			c.programs[name].byID[q.ID] = &q
		}
	}
	for i := range s.Items {
		c.loadItem(&s.Items[i])
	}
	for i := range s.Bands {
		c.loadFairness(&s.Bands[i])
	}
	c.reclaim.reclaimState = s.Reclaim
	c.reclaim.Outstanding = nil
	if c.reclaim.Issued = maps.Clone(s.Reclaim.Issued); c.reclaim.Issued == nil {
		c.reclaim.Issued = map[int]int64{}
	}
	for _, id := range s.Reclaim.Outstanding {
		if it := c.items[id]; it != nil {
			c.reclaim.outstanding = append(c.reclaim.outstanding, it)
		}
	}
}

func (c *Controller) loadBand(x *savedBand) {
	b := c.bandFor(x.Priority)
	b.declared, b.idleSince = x.Declared, x.IdleSince
	for _, f := range x.Flows {
		b.flows[f.ID] = &flow{band: b, id: f.ID, idleSince: f.IdleSince}
		c.flowCount++
	}
}

func (c *Controller) loadItem(x *itemState) {
	it := &item{itemState: *x}
	c.items[it.ID] = it
	b := c.byPriority[x.Priority]
	if b == nil { // removed while the request runs
		b = &band{Band: c.cfg.template(x.Priority)}
	}
	if it.flow = b.flows[x.FairnessID]; it.flow == nil {
		it.flow = &flow{band: b, id: x.FairnessID}
		if p := c.programs[b.Fairness.Instance]; p != nil {
			it.flow.program = p.byID[x.FairnessID]
		}
	}
	if it.Dispatched > 0 {
		if b.Priority < 0 && c.reclaim.enabled && it.Credit == 0 {
			c.reclaim.victims.Put(&it.inVictims, it.victimKey(), it)
		}
		return
	}
	f := it.flow
	f.items.Put(&it.inQueue, it.key(), it)
	f.bytes += it.Bytes
	b.requests++
	b.bytes += it.Bytes
	c.queued++
	c.queuedBytes += it.Bytes
	c.setDeadline(it)
}

// loadFairness restores a band's policy, without repeating the effects of flows that joined or left.
func (c *Controller) loadFairness(x *savedBand) {
	b := c.byPriority[x.Priority]
	for _, saved := range x.Flows {
		f := b.flows[saved.ID]
		waits := f.items.Len() > 0
		switch fair := b.fair.(type) {
		case *strict:
			if waits {
				fair.headChanged(f)
			}
		case *roundRobin:
			if waits {
				fair.waiting.join(f)
			}
			if x.Last != nil && *x.Last == f.id {
				fair.last = f
			}
		case *programAware:
			if f.program = fair.byID[f.id]; f.program == nil { // removed while the flow rests
				f.program = &program{ID: f.id}
			}
			if waits {
				fair.waiting.join(f)
			}
		}
	}
	if fair, ok := b.fair.(*programAware); ok {
		for _, id := range x.Resting {
			if f := b.flows[id]; f != nil {
				fair.rest(f)
			}
		}
	}
}
