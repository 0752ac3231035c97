package flowcontrol

import (
	"cmp"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Saved is what a Controller knows besides its configuration, in a form that
// JSON can carry: what Load needs so that another one of the same configuration
// goes on from there.
type Saved struct {
	Now        machine.Time              `json:"now"`
	Cycles     int64                     `json:"cycles"`
	Rhythm     int64                     `json:"rhythm,omitempty"`
	NextSweep  machine.Time              `json:"nextSweep"`
	Arrivals   uint64                    `json:"arrivals"`
	Dispatches uint64                    `json:"dispatches"`
	Stopped    bool                      `json:"stopped,omitempty"`
	Bands      []savedBand               `json:"bands"`
	Items      []savedItem               `json:"items,omitempty"` // in the order of their arrival
	Programs   map[string][]savedProgram `json:"programs,omitempty"`
	Loads      []savedLoad               `json:"loads,omitempty"`
	Reclaim    savedReclaim              `json:"reclaim"`
	// Reserved is what was dispatched and is not in the loads.
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

type savedItem struct {
	ID         RequestID     `json:"id"`
	Seq        uint64        `json:"seq"`
	Priority   int           `json:"priority,omitempty"`
	FairnessID string        `json:"fairness,omitempty"`
	Bytes      int64         `json:"bytes,omitempty"`
	Tokens     int64         `json:"tokens,omitempty"`
	Arrived    machine.Time  `json:"arrived"`
	TTL        machine.Time  `json:"ttl,omitempty"`
	Deadline   machine.Time  `json:"deadline,omitempty"`
	Rank       machine.Time  `json:"rank,omitempty"`
	Dispatched uint64        `json:"dispatched,omitempty"`
	Placed     bool          `json:"placed,omitempty"`
	IssuedAt   machine.Time  `json:"issuedAt,omitempty"`
	Credit     machine.Float `json:"credit,omitempty"`
}

type savedProgram struct {
	ID         string        `json:"id"`
	Service    machine.Float `json:"service,omitempty"`
	WorkedAt   machine.Time  `json:"workedAt,omitempty"`
	RestCycles int64         `json:"restCycles,omitempty"`
	RestUntil  machine.Time  `json:"restUntil,omitempty"`
	Running    int           `json:"running,omitempty"`
	Waiting    int           `json:"waiting,omitempty"`
	Dispatched int64         `json:"dispatched,omitempty"`
	WaitSumMs  machine.Float `json:"waitSumMs,omitempty"`
	LastDone   machine.Time  `json:"lastDone,omitempty"`
}

type savedLoad struct {
	Waiting   int           `json:"waiting,omitempty"`
	KVUsage   machine.Float `json:"kvUsage,omitempty"`
	Scraped   bool          `json:"scraped,omitempty"`
	UpdatedAt machine.Time  `json:"updatedAt,omitempty"`
	Requests  int64         `json:"requests,omitempty"`
	Tokens    int64         `json:"tokens,omitempty"`
}

type savedReclaim struct {
	Running     int           `json:"running,omitempty"`
	Outstanding []RequestID   `json:"outstanding,omitempty"`
	Cooling     []savedDebit  `json:"cooling,omitempty"`
	Target      machine.Float `json:"target,omitempty"`
	Issued      map[int]int64 `json:"issued,omitempty"`
	Confirmed   int64         `json:"confirmed,omitempty"`
	TimedOut    int64         `json:"timedOut,omitempty"`
}

type savedDebit struct {
	Credit  machine.Float `json:"credit"`
	Expires machine.Time  `json:"expires"`
}

// Save copies the Controller's state.
func (c *Controller) Save() *Saved {
	r := &c.reclaim
	s := &Saved{Now: c.now, Cycles: c.cycles, Rhythm: c.rhythm.cycles, NextSweep: c.nextSweep, Arrivals: c.arrivals,
		Dispatches: c.dispatches, Stopped: c.stopped,
		ReservedRequests: c.pool.reservedRequests, ReservedTokens: c.pool.reservedTokens,
		Reclaim: savedReclaim{Running: r.running, Target: machine.Float(r.target), Issued: maps.Clone(r.issued),
			Confirmed: r.confirmed, TimedOut: r.timedOut}}
	for _, it := range r.outstanding {
		s.Reclaim.Outstanding = append(s.Reclaim.Outstanding, it.id)
	}
	for _, d := range r.cooling {
		s.Reclaim.Cooling = append(s.Reclaim.Cooling, savedDebit{machine.Float(d.credit), d.expires})
	}
	for _, b := range c.bands {
		x := savedBand{Priority: b.Priority, Declared: b.declared, IdleSince: b.idleSince}
		for _, f := range b.flows {
			x.Flows = append(x.Flows, savedFlow{f.id, f.idleSince})
		}
		slices.SortFunc(x.Flows, func(a, b savedFlow) int { return cmp.Compare(a.ID, b.ID) })
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
		s.Items = append(s.Items,
			savedItem{ID: it.id, Seq: it.seq, Priority: it.flow.band.Priority, FairnessID: it.flow.id, Bytes: it.bytes,
				Tokens:  it.tokens,
				Arrived: it.arrived, TTL: it.ttl, Deadline: it.deadline, Rank: it.rank, Dispatched: it.dispatched,
				Placed: it.placed, IssuedAt: it.issuedAt, Credit: machine.Float(it.credit)})
	}
	slices.SortFunc(s.Items, func(a, b savedItem) int { return cmp.Compare(a.Seq, b.Seq) })
	for name, p := range c.programs {
		var list []savedProgram
		for _, q := range p.byID {
			list = append(list, savedProgram{q.id, machine.Float(q.service), q.workedAt, q.restCycles, q.restUntil,
				q.running, q.waiting, q.dispatched, machine.Float(q.waitSumMs), q.lastDone})
		}
		slices.SortFunc(list, func(a, b savedProgram) int { return cmp.Compare(a.ID, b.ID) })
		if s.Programs == nil {
			s.Programs = map[string][]savedProgram{}
		}
		s.Programs[name] = list
	}
	for _, l := range c.pool.loads {
		s.Loads = append(s.Loads,
			savedLoad{l.Waiting, machine.Float(l.KVUsage), l.Scraped, l.UpdatedAt, l.Requests, l.Tokens})
	}
	return s
}

// Load takes a state over, before the first message.
func (c *Controller) Load(s *Saved) {
	c.now, c.cycles, c.rhythm.cycles, c.nextSweep, c.arrivals, c.dispatches, c.stopped = s.Now, s.Cycles, s.Rhythm,
		s.NextSweep, s.Arrivals, s.Dispatches, s.Stopped
	loads := make([]Load, len(s.Loads))
	for i, l := range s.Loads {
		loads[i] = Load{l.Waiting, float64(l.KVUsage), l.Scraped, l.UpdatedAt, l.Requests, l.Tokens}
	}
	c.pool.set(loads, c.now)
	c.pool.reservedRequests, c.pool.reservedTokens = s.ReservedRequests, s.ReservedTokens
	for i := range s.Bands {
		c.loadBand(&s.Bands[i])
	}
	for name, list := range s.Programs {
		for _, p := range []int{-1, 0} { // a template's bands may all be gone
			if f := c.cfg.template(p).Fairness; f.Instance == name {
				c.newFairness(f)
			}
		}
		if c.programs[name] == nil {
			continue
		}
		for _, q := range list {
			c.programs[name].byID[q.ID] = &program{q.ID, float64(q.Service), q.WorkedAt, q.RestCycles, q.RestUntil,
				q.Running, q.Waiting, q.Dispatched, float64(q.WaitSumMs), q.LastDone, q.Dispatched > 0}
		}
	}
	for i := range s.Items {
		c.loadItem(&s.Items[i])
	}
	for i := range s.Bands {
		c.loadFairness(&s.Bands[i])
	}
	r := &c.reclaim
	r.running, r.target, r.confirmed, r.timedOut = s.Reclaim.Running, float64(s.Reclaim.Target), s.Reclaim.Confirmed,
		s.Reclaim.TimedOut
	if s.Reclaim.Issued != nil {
		r.issued = maps.Clone(s.Reclaim.Issued)
	}
	for _, id := range s.Reclaim.Outstanding {
		if it := c.items[id]; it != nil {
			r.outstanding = append(r.outstanding, it)
		}
	}
	for _, d := range s.Reclaim.Cooling {
		r.cooling = append(r.cooling, coolingDebit{float64(d.Credit), d.Expires})
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

func (c *Controller) loadItem(x *savedItem) {
	it := &item{id: x.ID, seq: x.Seq, bytes: x.Bytes, tokens: x.Tokens, arrived: x.Arrived, ttl: x.TTL,
		deadline: x.Deadline, rank: x.Rank,
		dispatched: x.Dispatched, placed: x.Placed, issuedAt: x.IssuedAt, credit: float64(x.Credit)}
	c.items[it.id] = it
	b := c.byPriority[x.Priority]
	if b == nil { // swept while the request runs
		b = &band{Band: c.cfg.template(x.Priority)}
	}
	if it.flow = b.flows[x.FairnessID]; it.flow == nil {
		it.flow = &flow{band: b, id: x.FairnessID}
		if p := c.programs[b.Fairness.Instance]; p != nil {
			it.flow.program = p.byID[x.FairnessID]
		}
	}
	if it.dispatched > 0 {
		if b.Priority < 0 && c.reclaim.Enabled && it.credit == 0 {
			c.reclaim.victims.Put(&it.inVictims, it.victimKey(), it)
		}
		return
	}
	f := it.flow
	f.items.Put(&it.inQueue, it.key(), it)
	f.bytes += it.bytes
	b.requests++
	b.bytes += it.bytes
	c.queued++
	c.queuedBytes += it.bytes
	c.setDeadline(it)
}

// loadFairness brings a band's policy to where it was. What it does when a flow
// comes or goes has been done.
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
			if f.program = fair.byID[f.id]; f.program == nil { // forgotten, while the flow rests
				f.program = &program{id: f.id}
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
