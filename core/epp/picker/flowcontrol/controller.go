package flowcontrol

import "github.com/windtunnel/windtunnel/core/machine"

// Controller is the flow control machine of one picker. It is not safe for concurrent use.
type Controller struct {
	counters
	cfg        Config
	bands      []*band // highest priority first
	byPriority map[int]*band
	items      map[RequestID]*item // waiting and running
	free       []*item
	deadlines  machine.Heap[*item]
	programs   map[string]*programs
	pool       pool
	reclaim    reclaimer
	fx         *Effects // the caller's buffer, during a call

	queued, queuedBytes int64
	flowCount           int64
}

// counters is the part of a Controller that is saved as it is.
type counters struct {
	Now        machine.Time `json:"now"`
	Cycles     int64        `json:"cycles"` // dispatch cycles of the fixed pace before Now
	Rhythm     rhythm       `json:"rhythm,omitempty"`
	NextSweep  machine.Time `json:"nextSweep"`
	Arrivals   uint64       `json:"arrivals"`
	Dispatches uint64       `json:"dispatches"`
	Stopped    bool         `json:"stopped,omitempty"`
}

type Effects = machine.Effects[Effect]

var _ machine.Machine[Message, *Effects] = (*Controller)(nil)

// NewController returns a machine whose pool has no endpoints.
func NewController(config Config) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	c := &Controller{
		cfg:        config,
		byPriority: map[int]*band{},
		items:      map[RequestID]*item{},
		programs:   map[string]*programs{},
		pool:       pool{detector: config.Detector, changed: true},
		reclaim: reclaimer{enabled: config.Eviction, grace: utilizationGrace,
			reclaimState: reclaimState{Issued: map[int]int64{}}},
		counters: counters{NextSweep: flowIdleTime},
	}
	if config.Detector.Kind == ConcurrencyDetectorType {
		c.reclaim.grace = concurrencyGrace
	}
	for _, b := range config.Bands {
		c.addBand(b, true)
	}
	if c.byPriority[0] == nil {
		c.addBand(config.template(0), true)
	}
	return c, nil
}

// Input takes a message after it has played everything due. A late message takes effect at the machine's own time.
func (c *Controller) Input(now machine.Time, msg Message, fx *Effects) {
	c.Advance(now, fx)
	c.fx = fx
	switch m := msg.(type) { // a method of Message would make every message escape to the heap
	case Arrive:
		c.arrive(m)
	case Gone:
		c.gone(m.ID)
	case Placed:
		c.placed(m.ID)
	case Done:
		c.done(m.ID, m.PromptTokens, m.CompletionTokens)
	case Pool:
		c.setPool(m.Loads)
	case LoadChanged:
		c.pool.change(m.Endpoint, m.Load, c.Now)
	case Objectives:
		c.setObjectives(m.Priorities)
	case Shutdown:
		c.shutdown()
	}
	c.fx = nil
}

// Next returns the time at which a request expires or can leave.
func (c *Controller) Next() (machine.Time, bool) {
	at := c.wake()
	return at, at != machine.Never
}

// Advance plays everything due by now.
func (c *Controller) Advance(now machine.Time, fx *Effects) {
	c.fx = fx
	now = max(now, c.Now)
	for at := c.wake(); at <= now && at != machine.Never; at = c.wake() {
		c.pass(at - 1)
		c.Now = max(c.Now, at)
		c.expire()
		if c.cycleTime(1) == c.Now {
			c.Cycles++
			c.cycle()
		}
	}
	c.pass(now)
	c.Now, c.fx = now, nil
}

// wake returns the time of the next event without a message.
func (c *Controller) wake() machine.Time {
	if c.queued == 0 {
		return machine.Never
	}
	at := c.usefulCycle()
	if c.deadlines.Len() > 0 {
		first, _ := c.deadlines.Peek()
		at = min(at, machine.Time(first.First))
	}
	// Stale metrics of an endpoint change the saturation.
	return max(c.Now, min(at, c.pool.until(c.Now)))
}

// cycleTime returns the time of the n-th cycle from now.
func (c *Controller) cycleTime(n int64) machine.Time {
	const step = int64(dispatchInterval)
	if c.Cycles+n > int64(machine.Never)/step {
		return machine.Never
	}
	return machine.Time((c.Cycles + n) * step)
}

// cycleFrom returns the time of the first future cycle at or after t.
func (c *Controller) cycleFrom(t machine.Time) machine.Time {
	const step = dispatchInterval
	if t > machine.Never-step {
		return machine.Never
	}
	return max(c.cycleTime(1), (t+step-1)/step*step)
}

// pass counts the idle cycles up to t.
func (c *Controller) pass(t machine.Time) {
	n := int64(t)/int64(dispatchInterval) - c.Cycles
	if n <= 0 {
		return
	}
	if c.cfg.UsageLimit.Kind == SoftReflectiveCeiling {
		c.countGated(t)
	}
	c.Cycles += n
	for _, b := range c.bands {
		if b.requests == 0 {
			b.fair.idle(c.cycleTime(0), n)
		}
	}
}

// countGated counts the soft policy's gated cycles up to t, separately for each time at which metrics become stale.
func (c *Controller) countGated(t machine.Time) {
	counted := c.Cycles
	for from := c.Now; from <= t; {
		end := min(t, c.pool.until(from)-1)
		last := int64(end) / int64(dispatchInterval)
		if c.anyGated(c.pool.saturation(from)) {
			c.Rhythm += rhythm(max(0, last-counted))
		}
		counted, from = max(counted, last), end+1
	}
}

func (c *Controller) gateOf(i int, saturation float64) gate {
	n := len(c.bands)
	return c.cfg.UsageLimit.gate(i, n, c.bands[i].Priority, c.bands[0].Priority, c.bands[n-1].Priority, saturation)
}

// anyGated reports whether the soft policy counts cycles. The lowest band is gated first.
func (c *Controller) anyGated(saturation float64) bool {
	return c.gateOf(len(c.bands)-1, saturation).gated
}

// usefulCycle returns the time of the next cycle in which a request can leave or be evicted if nothing changes before.
func (c *Controller) usefulCycle() machine.Time {
	saturation := c.pool.saturation(c.Now)
	wait := int64(1)
	for i, b := range c.bands {
		g := c.gateOf(i, saturation)
		if saturation >= g.ceiling {
			if d, _ := c.demand(i, saturation); d != nil {
				return c.cycleFrom(c.reclaim.opens())
			}
			return machine.Never
		}
		if g.gated {
			wait = c.Rhythm.until(period(saturation))
		}
		if b.requests > 0 {
			return c.cycleTime(wait)
		}
	}
	return machine.Never
}

// cycle is one dispatch cycle: at most one request leaves.
func (c *Controller) cycle() {
	saturation := c.pool.saturation(c.Now)
	open := true // whether gated bands are open in this cycle
	if c.anyGated(saturation) {
		open = c.Rhythm.until(period(saturation)) == 1
		c.Rhythm++
	}
	for i, b := range c.bands {
		g := c.gateOf(i, saturation)
		if saturation >= g.ceiling || (g.gated && !open) {
			c.revoke(i, saturation)
			return
		}
		if b.requests > 0 {
			c.dispatch(b, b.fair.pick(c.Now).head())
			return
		}
		b.fair.idle(c.Now, 1)
	}
}
