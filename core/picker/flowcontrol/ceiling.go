package flowcontrol

import (
	"errors"
	"fmt"
	"math"
)

// The usage limit policies, by their plug-in types.
const (
	StaticUsageLimit      = "static-usage-limit-policy"
	PriorityHoldback      = "priority-holdback-policy"
	SoftReflectiveCeiling = "soft-reflective-ceiling-policy"
)

// The domains of priority-holdback-policy.
const (
	DomainRank  = "rank"  // equal steps from band to band
	DomainValue = "value" // in proportion to the priorities' values
)

// UsageLimit chooses and configures how high the saturation may be for each
// band to leave: its ceiling.
type UsageLimit struct {
	Kind string

	// Threshold is the one ceiling of static-usage-limit-policy.
	Threshold float64

	// Domain, MinCeiling and MaxCeiling are priority-holdback-policy's: the
	// lowest band gets the first, the highest the second. A single band gets
	// MaxCeiling.
	Domain                 string
	MinCeiling, MaxCeiling float64
}

// Validate reports parameters out of range, in the real plug-ins' words.
func (u UsageLimit) Validate() error {
	switch u.Kind {
	case StaticUsageLimit:
		if math.IsNaN(u.Threshold) {
			return errors.New("threshold must be a number")
		}
		return nil
	case SoftReflectiveCeiling:
		return nil
	case PriorityHoldback:
	default:
		return fmt.Errorf("unknown usage limit policy %q: use %s, %s or %s", u.Kind, StaticUsageLimit, PriorityHoldback, SoftReflectiveCeiling)
	}
	var errs []error
	if u.Domain != DomainRank && u.Domain != DomainValue {
		errs = append(errs, fmt.Errorf("unsupported domain %q, must be one of: %q, %q", u.Domain, DomainRank, DomainValue))
	}
	if !(u.MinCeiling >= 0 && u.MinCeiling < 1) {
		errs = append(errs, fmt.Errorf("minCeiling must be in [0.0, 1.0), got %f", u.MinCeiling))
	}
	if !(u.MaxCeiling > 0 && u.MaxCeiling <= 1) {
		errs = append(errs, fmt.Errorf("maxCeiling must be in (0.0, 1.0], got %f", u.MaxCeiling))
	}
	if u.MinCeiling >= u.MaxCeiling {
		errs = append(errs, fmt.Errorf("minCeiling (%f) must be strictly less than maxCeiling (%f)", u.MinCeiling, u.MaxCeiling))
	}
	return prefixed("invalid priority holdback policy configuration", errs)
}

// ceilings computes the bands' ceilings, highest priority first, and keeps the
// soft policy's place in its rhythm.
//
// A gated band of soft-reflective-ceiling-policy is open in one dispatch cycle
// of every period and shut in the others. The cycles in which nothing can
// happen are not played, only counted (skip), so the rhythm goes on.
type ceilings struct {
	UsageLimit
	counts []int64 // per rank: cycles in which the band was gated
}

// gate is what a band's ceiling means at one saturation.
type gate struct {
	ceiling float64
	period  int64 // > 0: gated, open in one cycle of period
}

// at is the gate of the band of rank i out of n, whose priorities run from
// high to low, before the rhythm is looked at.
func (c *ceilings) at(i, n, priority, high, low int, saturation float64) gate {
	switch c.Kind {
	case PriorityHoldback:
		spread := c.MaxCeiling - c.MinCeiling
		switch {
		case n == 1 || high == low:
			return gate{ceiling: c.MaxCeiling}
		case c.Domain == DomainValue:
			position := float64(float64(priority)-float64(low)) / float64(float64(high)-float64(low))
			return gate{ceiling: c.MinCeiling + float64(position*spread)}
		}
		return gate{ceiling: c.MaxCeiling - float64(float64(i)*spread)/float64(n-1)}
	case SoftReflectiveCeiling:
		switch {
		case i == 0 || saturation < 1-float64(float64(i)*saturation)/float64(n-1):
			return gate{ceiling: 1}
		case saturation >= 1:
			return gate{ceiling: 0}
		}
		// The small term keeps the period finite close to full saturation.
		period := int64(max(1, math.Round(saturation/(1-saturation+1e-9))))
		return gate{ceiling: 1, period: period}
	}
	return gate{ceiling: c.Threshold}
}

// skip counts n cycles for the gated band of rank i.
func (c *ceilings) skip(i int, n int64) {
	for len(c.counts) <= i {
		c.counts = append(c.counts, 0)
	}
	c.counts[i] += n
}

// until is how many cycles from now the gated band of rank i is open next; 1
// is the next cycle.
func (c *ceilings) until(i int, period int64) int64 {
	count := int64(0)
	if i < len(c.counts) {
		count = c.counts[i]
	}
	return period - count%period
}
