package flowcontrol

import (
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
)

// In-flight eviction ends running requests of a priority below zero (sheddable-eviction-filter) when a higher band is
// blocked while requests wait in it. The amount to free is the saturation above the band's ceiling; one request frees
// an estimated equal share of the saturation. The next decision waits until every evicted stream has ended and the
// detector has had time to see it, so that one shortage does not cause two decisions.
const (
	maxRevocations      = 2                   // in one decision
	confirmationTimeout = 10 * machine.Second // then a stream counts as ended
)

// reclaimer is the state of in-flight eviction.
type reclaimer struct {
	Eviction
	victims     machine.Heap[*item]
	outstanding []*item // evicted, stream not ended
	reclaimState
}

// reclaimState is the saved part of a reclaimer.
type reclaimState struct {
	Running     int            `json:"running,omitempty"`     // requests dispatched and not done
	Outstanding []RequestID    `json:"outstanding,omitempty"` // in a saved state only
	Cooling     []coolingDebit `json:"cooling,omitempty"`     // ended, not yet seen by the detector
	Target      float64        `json:"target,omitempty"`      // the last decision's shortage
	Issued      map[int]int64  `json:"issued,omitempty"`      // by the waiting band's priority
	Confirmed   int64          `json:"confirmed,omitempty"`
	TimedOut    int64          `json:"timedOut,omitempty"`
}

type coolingDebit struct {
	Credit  float64      `json:"credit"`
	Expires machine.Time `json:"expires"`
}

// settle moves timed-out evictions to Cooling and removes those that have cooled.
func (r *reclaimer) settle(now machine.Time, fx *Effects) {
	open := r.outstanding[:0]
	for _, it := range r.outstanding {
		if now-it.IssuedAt < confirmationTimeout {
			open = append(open, it)
			continue
		}
		r.TimedOut++
		r.Cooling = append(r.Cooling, coolingDebit{it.Credit, now.Add(r.Grace)})
		fx.Add(Effect{At: now, Kind: RevocationTimedOut, ID: it.ID, Wait: now - it.IssuedAt})
	}
	clear(r.outstanding[len(open):])
	r.outstanding = open
	warm := r.Cooling[:0]
	for _, d := range r.Cooling {
		if now < d.Expires {
			warm = append(warm, d)
		}
	}
	r.Cooling = warm
}

// opens returns the earliest time at which the next decision may be possible.
func (r *reclaimer) opens() machine.Time {
	at := machine.Time(math.MinInt64)
	for _, it := range r.outstanding {
		at = max(at, it.IssuedAt.Add(confirmationTimeout))
	}
	for _, d := range r.Cooling {
		at = max(at, d.Expires)
	}
	return at
}

// ended confirms that an evicted request's stream has ended.
func (r *reclaimer) ended(it *item, now machine.Time, fx *Effects) {
	for i, o := range r.outstanding {
		if o == it {
			r.outstanding = append(r.outstanding[:i], r.outstanding[i+1:]...)
			r.Confirmed++
			r.Cooling = append(r.Cooling, coolingDebit{it.Credit, now.Add(r.Grace)})
			fx.Add(Effect{At: now, Kind: RevocationConfirmed, ID: it.ID, Wait: now - it.IssuedAt})
			return
		}
	}
}

// demand returns the first blocked band, from rank first on, that may evict: a request waits in it, its ceiling can be
// reached at all, and the next victim's priority is lower than the band's. It also returns the band's ceiling.
func (c *Controller) demand(first int, saturation float64) (*band, float64) {
	r := &c.reclaim
	if !r.Enabled || r.victims.Len() == 0 || !(saturation > 0) || math.IsInf(saturation, 0) {
		return nil, 0
	}
	lowest, _ := r.victims.Peek()
	for i := first; i < len(c.bands); i++ {
		b := c.bands[i]
		if int64(b.Priority) <= lowest.First {
			break
		}
		if g := c.gateOf(i, saturation); !g.gated && g.ceiling > 0 && saturation >= g.ceiling && b.requests > 0 {
			return b, g.ceiling
		}
	}
	return nil, 0
}

// revoke makes one eviction decision for a blocked band, if the previous ones have cooled.
func (c *Controller) revoke(first int, saturation float64) {
	r := &c.reclaim
	b, ceiling := c.demand(first, saturation)
	if b == nil {
		return
	}
	r.settle(c.now, c.fx)
	if len(r.outstanding) > 0 || len(r.Cooling) > 0 {
		return
	}
	credit := saturation / float64(r.Running)
	r.Target = saturation - ceiling
	// At exactly the ceiling the shortage is zero, although the band is blocked.
	n := int(min(max(1, math.Ceil(r.Target/credit)), maxRevocations))
	for range n {
		if r.victims.Len() == 0 {
			break
		}
		priority, first := r.victims.Peek()
		if priority.First >= int64(b.Priority) {
			break
		}
		it := *first
		r.victims.Remove(&it.inVictims)
		it.Credit, it.IssuedAt = credit, c.now
		r.outstanding = append(r.outstanding, it)
		r.Issued[b.Priority]++
		c.fx.Add(Effect{At: c.now, Kind: Evict, ID: it.ID, Priority: it.flow.band.Priority, FairnessID: it.flow.id,
			ForPriority: b.Priority})
	}
}
