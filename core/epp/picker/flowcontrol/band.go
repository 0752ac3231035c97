package flowcontrol

import (
	"cmp"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// How long an idle flow, and an undeclared band without flows, are kept. They only cost memory, so an arrival removes
// them and not a timer.
const (
	flowIdleTime = 300 * machine.Second
	bandIdleTime = 600 * machine.Second
	maxIdleFlows = 65536 // beyond it, all idle flows go at once
)

// band is a priority band at run time.
type band struct {
	Band
	declared        bool // in the configuration, or 0, or an objective's: never removed
	requests, bytes int64
	flows           map[string]*flow
	fair            fairness
	idleSince       machine.Time
}

// flow holds the waiting requests of one priority and fairness id.
type flow struct {
	band      *band
	id        string
	items     machine.Heap[*item]
	bytes     int64
	idleSince machine.Time
	program   *program // of program-aware-fairness
	restsAt   int      // its place, from 1, in programAware.resting; 0 while a request waits

	inStrict machine.Handle
}

func (f *flow) head() *item { _, it := f.items.Peek(); return *it }

// fits reports whether a request of so many bytes may wait in the band.
func (b *band) fits(bytes int64) bool {
	return b.requests+1 <= b.MaxRequests && b.bytes+bytes <= b.MaxBytes
}

// add puts a request into its flow.
func (b *band) add(it *item) {
	f := it.flow
	f.items.Put(&it.inQueue, it.key(), it)
	f.bytes += it.Bytes
	b.requests++
	b.bytes += it.Bytes
	if f.items.Len() == 1 {
		b.fair.join(f)
	} else if f.head() == it {
		b.fair.headChanged(f)
	}
}

// take removes a waiting request from its flow.
func (b *band) take(it *item, now machine.Time) {
	f := it.flow
	wasHead := f.head() == it
	f.items.Remove(&it.inQueue)
	f.bytes -= it.Bytes
	b.requests--
	b.bytes -= it.Bytes
	switch {
	case f.items.Len() == 0:
		b.fair.leave(f)
		f.idleSince, b.idleSince = now, now
	case wasHead:
		b.fair.headChanged(f)
	}
}

// bandFor returns the band of a priority; it makes one from the template if there is none.
func (c *Controller) bandFor(priority int) *band {
	if b := c.byPriority[priority]; b != nil {
		return b
	}
	return c.addBand(c.cfg.template(priority), false)
}

func (c *Controller) addBand(config Band, declared bool) *band {
	b := &band{Band: config, declared: declared, flows: map[string]*flow{}, idleSince: c.Now}
	b.fair = c.newFairness(config.Fairness)
	c.byPriority[config.Priority] = b
	i, _ := slices.BinarySearchFunc(c.bands, b, func(x, y *band) int { return cmp.Compare(y.Priority, x.Priority) })
	c.bands = slices.Insert(c.bands, i, b)
	return b
}

// flowFor returns a band's flow for a fairness id; it makes one if there is none.
func (c *Controller) flowFor(b *band, id string) *flow {
	f := b.flows[id]
	if f == nil {
		f = &flow{band: b, id: id}
		b.flows[id] = f
		c.flowCount++
		b.fair.admit(f)
	}
	return f
}

// setObjectives takes the priorities of the pool's objectives. They have bands from the beginning, which count for the
// ceilings.
func (c *Controller) setObjectives(priorities []int) {
	keep := map[int]bool{0: true}
	for _, b := range c.cfg.Bands {
		keep[b.Priority] = true
	}
	for _, p := range priorities {
		keep[p] = true
		c.bandFor(p)
	}
	for _, b := range c.bands {
		if b.declared && !keep[b.Priority] {
			b.idleSince = c.Now
		}
		b.declared = keep[b.Priority]
	}
}

// sweep removes flows and bands that have been idle for long.
func (c *Controller) sweep() {
	crowded := c.flowCount-c.queued > maxIdleFlows // a flow is busy only if a request waits in it
	if c.Now < c.NextSweep && !crowded {
		return
	}
	c.NextSweep = c.Now.Add(flowIdleTime)
	c.bands = slices.DeleteFunc(c.bands, func(b *band) bool {
		for id, f := range b.flows {
			if f.items.Len() == 0 && (crowded || c.Now-f.idleSince >= flowIdleTime) {
				delete(b.flows, id)
				c.flowCount--
				b.fair.forget(f)
			}
		}
		old := !b.declared && len(b.flows) == 0 && c.Now-b.idleSince >= bandIdleTime
		if old {
			delete(c.byPriority, b.Priority)
		}
		return old
	})
	for _, p := range c.programs {
		p.sweep(c.Now)
	}
}
