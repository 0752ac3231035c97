package flowcontrol

import (
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// In-flight eviction ends running requests of a priority below zero (sheddable-eviction-filter) when a higher band is
// blocked while requests wait in it. The amount to free is the saturation above the band's ceiling; one request frees
// an estimated equal share of the saturation. The next decision waits until every evicted stream has ended and the
// detector has had time to see it, so that one shortage does not cause two decisions.
const (
	maxRevocations      = 2                   // in one decision
	confirmationTimeout = 10 * machine.Second // then a stream counts as ended

	// The real picker's grace by its detector. That of utilization-detector is its refresh interval, its staleness
	// threshold (2 s) and 250 ms.
	concurrencyGrace = 10 * machine.Millisecond
	utilizationGrace = 50*machine.Millisecond + 2*machine.Second + 250*machine.Millisecond
)

// reclaimer is the state of in-flight eviction.
type reclaimer struct {
	enabled bool
	// grace is the time from the end of an evicted request's stream to the next eviction; the detector may not see the
	// freed capacity earlier.
	grace       machine.Time
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
	r.outstanding = slices.DeleteFunc(r.outstanding, func(it *item) bool {
		late := now-it.IssuedAt >= confirmationTimeout
		if late {
			r.TimedOut++
			r.cool(it, RevocationTimedOut, now, fx)
		}
		return late
	})
	r.Cooling = slices.DeleteFunc(r.Cooling, func(d coolingDebit) bool { return now >= d.Expires })
}

// cool starts the wait until the detector has seen the end of an evicted request.
func (r *reclaimer) cool(it *item, end EffectKind, now machine.Time, fx *Effects) {
	r.Cooling = append(r.Cooling, coolingDebit{it.Credit, now.Add(r.grace)})
	fx.Add(Effect{At: now, Kind: end, ID: it.ID, Wait: now - it.IssuedAt})
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
	if i := slices.Index(r.outstanding, it); i >= 0 {
		r.outstanding = slices.Delete(r.outstanding, i, i+1)
		r.Confirmed++
		r.cool(it, RevocationConfirmed, now, fx)
	}
}

// demand returns the first blocked band, from rank first on, that may evict: a request waits in it, its ceiling can be
// reached at all, and the next victim's priority is lower than the band's. It also returns the band's ceiling.
func (c *Controller) demand(first int, saturation float64) (*band, float64) {
	r := &c.reclaim
	if !r.enabled || r.victims.Len() == 0 || !(saturation > 0) || math.IsInf(saturation, 0) {
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
	r.settle(c.Now, c.fx)
	if len(r.outstanding) > 0 || len(r.Cooling) > 0 {
		return
	}
	credit := saturation / float64(r.Running)
	r.Target = saturation - ceiling
	// At exactly the ceiling the shortage is zero, although the band is blocked.
	n := int(min(max(1, math.Ceil(r.Target/credit)), maxRevocations))
	for range min(n, r.victims.Len()) {
		priority, first := r.victims.Peek()
		if priority.First >= int64(b.Priority) {
			break
		}
		it := *first
		r.victims.Remove(&it.inVictims)
		it.Credit, it.IssuedAt = credit, c.Now
		r.outstanding = append(r.outstanding, it)
		r.Issued[b.Priority]++
		c.fx.Add(Effect{At: c.Now, Kind: Evict, ID: it.ID, Priority: it.flow.band.Priority, FairnessID: it.flow.id,
			ForPriority: b.Priority})
	}
}
