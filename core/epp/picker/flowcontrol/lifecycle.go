package flowcontrol

import "github.com/windtunnel/windtunnel/core/machine"

// arrive queues or refuses a request, and runs a dispatch cycle.
func (c *Controller) arrive(m Arrive) {
	if _, twice := c.items[m.ID]; twice {
		return // a mistake of the driver; the first request keeps its outcome
	}
	m.Bytes = max(m.Bytes, 0)
	c.sweep()
	decided := Effect{At: c.Now, Kind: Decided, ID: m.ID, Priority: m.Priority, FairnessID: m.FairnessID,
		Bytes: m.Bytes, PoolEmpty: c.pool.empty()}
	if c.Stopped {
		decided.Outcome = RejectedOther
		c.fx.Add(decided)
		return
	}
	b := c.bandFor(m.Priority)
	if !b.fits(m.Bytes) || !c.fits(m.Bytes) {
		decided.Outcome = RejectedCapacity
		if decided.PoolEmpty {
			decided.Outcome = RejectedNoEndpoints
		}
		c.fx.Add(decided)
		return
	}
	c.Arrivals++
	it := c.newItem()
	ttl := m.TTL
	if ttl <= 0 {
		ttl = c.cfg.RequestTTL
		if b.RequestTTL != nil {
			ttl = *b.RequestTTL
		}
	}
	*it = item{itemState: itemState{ID: m.ID, Seq: c.Arrivals, Priority: m.Priority, FairnessID: m.FairnessID,
		Bytes: m.Bytes, Tokens: m.Tokens, Arrived: c.Now, TTL: ttl, Most: m.Most}}
	it.Deadline = c.deadline(it)
	it.flow = c.flowFor(b, m.FairnessID)
	it.Rank = b.Ordering.rank(it, m.TTFT)
	c.items[m.ID] = it
	c.queued++
	c.queuedBytes += it.Bytes
	b.add(it)
	c.cycle()
	if it.Dispatched == 0 {
		c.setDeadline(it)
	}
}

// deadline returns the end of a waiting time that starts now.
func (c *Controller) deadline(it *item) machine.Time {
	ttl := it.TTL
	if c.cfg.NoEndpointTTL != nil && c.pool.empty() {
		ttl = *c.cfg.NoEndpointTTL
	}
	until := machine.Never
	if ttl > 0 {
		until = c.Now.Add(ttl)
	}
	if it.Most > 0 {
		until = min(until, it.Arrived.Add(it.Most))
	}
	return until
}

func (c *Controller) setDeadline(it *item) {
	if it.Deadline == machine.Never {
		c.deadlines.Remove(&it.inDeadlines)
		return
	}
	c.deadlines.Put(&it.inDeadlines, machine.Key{First: int64(it.Deadline), Second: it.Seq}, it)
}

// setPool replaces the pool. With a NoEndpointTTL, the waiting time restarts when the first endpoint appears or the
// last one goes.
func (c *Controller) setPool(loads []Load) {
	was := c.pool.empty()
	c.pool.set(loads, c.Now)
	if c.cfg.NoEndpointTTL == nil || was == c.pool.empty() || c.queued == 0 {
		return
	}
	for _, it := range c.items { // the heap's order does not depend on the map's
		if it.Dispatched > 0 {
			continue
		}
		it.Deadline = c.deadline(it)
		c.setDeadline(it)
	}
}

// fits reports whether the limits over all bands permit one more request.
func (c *Controller) fits(bytes int64) bool {
	return (c.cfg.MaxRequests == 0 || c.queued+1 <= c.cfg.MaxRequests) &&
		(c.cfg.MaxBytes == 0 || c.queuedBytes+bytes <= c.cfg.MaxBytes)
}

func (c *Controller) newItem() *item {
	if n := len(c.free); n > 0 {
		it := c.free[n-1]
		c.free = c.free[:n-1]
		return it
	}
	return new(item)
}

// leave removes a waiting request and reports its outcome.
func (c *Controller) leave(it *item, outcome Outcome) {
	b := it.flow.band
	b.take(it, c.Now)
	c.deadlines.Remove(&it.inDeadlines)
	c.queued--
	c.queuedBytes -= it.Bytes
	c.fx.Add(Effect{
		At: c.Now, Kind: Decided, ID: it.ID, Outcome: outcome, PoolEmpty: c.pool.empty(),
		Priority: b.Priority, FairnessID: it.flow.id, Bytes: it.Bytes, Wait: c.Now - it.Arrived,
	})
	if outcome != Dispatched {
		delete(c.items, it.ID)
		c.free = append(c.free, it)
	}
}

func (c *Controller) dispatch(b *band, it *item) {
	c.leave(it, Dispatched)
	c.Dispatches++
	it.Dispatched = c.Dispatches
	c.pool.reserve(1, it.Tokens)
	c.reclaim.Running++
	if b.Priority < 0 && c.reclaim.enabled {
		c.reclaim.victims.Put(&it.inVictims, it.victimKey(), it)
	}
	b.fair.picked(it, c.Now)
}

// expire ends every request whose TTL is over.
func (c *Controller) expire() {
	for c.deadlines.Len() > 0 {
		_, it := c.deadlines.Peek()
		if (*it).Deadline > c.Now {
			return
		}
		c.leave(*it, EvictedTTL)
	}
}

func (c *Controller) placed(id RequestID) {
	if it := c.items[id]; it != nil && it.Dispatched > 0 && !it.Placed {
		it.Placed = true
		c.pool.reserve(-1, -it.Tokens)
	}
}

func (c *Controller) gone(id RequestID) {
	it := c.items[id]
	if it == nil {
		return
	}
	if it.Dispatched == 0 {
		c.leave(it, EvictedContextCancelled)
		return
	}
	c.done(id, 0, 0)
}

// done ends a running request.
func (c *Controller) done(id RequestID, promptTokens, completionTokens int64) {
	it := c.items[id]
	if it == nil || it.Dispatched == 0 {
		return
	}
	delete(c.items, id)
	if !it.Placed {
		c.pool.reserve(-1, -it.Tokens)
	}
	c.reclaim.Running--
	c.reclaim.victims.Remove(&it.inVictims)
	if it.Credit > 0 {
		c.reclaim.ended(it, c.Now, c.fx)
	}
	if p := it.flow.program; p != nil {
		c.programs[it.flow.band.Fairness.Instance].done(p, promptTokens, completionTokens, c.Now)
	}
	c.free = append(c.free, it)
}

// shutdown refuses all waiting requests, in each band in the fairness policy's order.
func (c *Controller) shutdown() {
	c.Stopped = true
	for _, b := range c.bands {
		for b.requests > 0 {
			c.leave(b.fair.pick(c.Now).head(), EvictedOther)
		}
	}
}
