package flowcontrol

import (
	"cmp"
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

// UsageLimit chooses and configures the bands' ceilings: no request leaves a band while the saturation is at or above
// its ceiling.
type UsageLimit struct {
	Kind      string
	Threshold float64  `json:"threshold"` // the one ceiling of static-usage-limit-policy
	Holdback  Holdback // of priority-holdback-policy
}

// The domains of priority-holdback-policy.
const (
	DomainRank  = "rank"  // equal steps from band to band
	DomainValue = "value" // in proportion to the priorities' values
)

// Holdback has the parameters of priority-holdback-policy. The lowest band gets MinCeiling; the highest, or the only
// one, gets MaxCeiling.
type Holdback struct {
	Shape      string   `json:"shape"`      // "" or "linear"
	Domain     string   `json:"domain"`     // "" is DomainRank
	MinCeiling *float64 `json:"minCeiling"` // required
	MaxCeiling *float64 `json:"maxCeiling"` // nil is 1
}

func (u UsageLimit) withDefaults() UsageLimit {
	u.Holdback.Shape = cmp.Or(u.Holdback.Shape, "linear")
	u.Holdback.Domain = cmp.Or(u.Holdback.Domain, DomainRank)
	if u.Holdback.MaxCeiling == nil {
		u.Holdback.MaxCeiling = new(1.0)
	}
	return u
}

// Validate returns an error for parameters out of range, in the real plug-ins' words.
func (u UsageLimit) Validate() error {
	u = u.withDefaults()
	switch u.Kind {
	case StaticUsageLimit:
		if math.IsNaN(u.Threshold) {
			return errors.New("invalid static usage limit policy configuration: threshold must be a number")
		}
		return nil
	case SoftReflectiveCeiling:
		return nil
	case PriorityHoldback:
		return u.Holdback.validate()
	}
	return fmt.Errorf("unknown usage limit policy %q: use %s, %s or %s", u.Kind, StaticUsageLimit, PriorityHoldback,
		SoftReflectiveCeiling)
}

func (h Holdback) validate() error {
	const prefix = "invalid priority holdback policy configuration"
	if h.MinCeiling == nil {
		return problems{errors.New("minCeiling is required")}.under(prefix)
	}
	low, high := *h.MinCeiling, *h.MaxCeiling
	var errs problems
	errs.unless(h.Shape == "linear", "unsupported shape %q, must be %q", h.Shape, "linear")
	errs.unless(h.Domain == DomainRank || h.Domain == DomainValue, "unsupported domain %q, must be one of: %q, %q",
		h.Domain, DomainRank, DomainValue)
	errs.unless(low >= 0 && low < 1, "minCeiling must be in [0.0, 1.0), got %f", low)
	errs.unless(high > 0 && high <= 1, "maxCeiling must be in (0.0, 1.0], got %f", high)
	errs.unless(low < high, "minCeiling (%f) must be strictly less than maxCeiling (%f)", low, high)
	return errs.under(prefix)
}

// gate is a band's ceiling at one saturation. A gated band is open in one dispatch cycle of each period and closed in
// the others. All gated bands are open in the same cycle.
type gate struct {
	ceiling float64
	gated   bool
}

// gate returns the gate of the band of rank i of n, with high and low the bands' extreme priorities.
func (u UsageLimit) gate(i, n, priority, high, low int, saturation float64) gate {
	switch u.Kind {
	case PriorityHoldback:
		lowest, highest := *u.Holdback.MinCeiling, *u.Holdback.MaxCeiling
		spread := highest - lowest
		switch {
		case n == 1:
			return gate{ceiling: highest}
		case u.Holdback.Domain == DomainValue:
			position := (float64(priority) - float64(low)) / (float64(high) - float64(low))
			return gate{ceiling: lowest + float64(position*spread)}
		}
		return gate{ceiling: highest - float64(float64(i)*spread)/float64(n-1)}
	case SoftReflectiveCeiling:
		switch {
		case i == 0 || saturation < 1-float64(float64(i)*saturation)/float64(n-1):
			return gate{ceiling: 1}
		case saturation >= 1:
			return gate{ceiling: 0}
		}
		return gate{ceiling: 1, gated: true}
	}
	return gate{ceiling: u.Threshold}
}

// rhythm is the place of soft-reflective-ceiling-policy in its period. It also counts cycles in which nothing can
// happen, which are not played.
type rhythm int64

// period returns the period, in cycles, of the gated bands at a saturation below 1.
func period(saturation float64) int64 {
	// The small term keeps it finite next to full saturation.
	return int64(max(1, math.Round(saturation/(1-saturation+1e-9))))
}

// until returns in how many cycles the gated bands are next open; 1 is the next cycle.
func (r rhythm) until(period int64) int64 { return period - int64(r)%period }
