package autoscaler

import (
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// The HorizontalPodAutoscaler's arithmetic. Figures are in thousandths, like Kubernetes' quantities.

// TargetKind is the kind of a metric's target.
type TargetKind string

// The kinds of targets.
const (
	// AverageValue is a target for each replica: the figure is divided by their number.
	AverageValue TargetKind = "AverageValue"
	// Value is a target for the figure itself.
	Value TargetKind = "Value"
)

// Behavior limits how fast the number of replicas changes.
type Behavior struct{ Up, Down Rules }

// Rules limit the changes in one direction.
type Rules struct {
	// Window is the time over which recommendations count: the number rises to the lowest of them, and falls to the
	// highest.
	Window machine.Time
	// Policies each limit the change. SelectPolicy selects one of them.
	Policies     []Policy
	SelectPolicy SelectPolicy
	// Tolerance is how far the ratio of figure to target may be from 1 without a change.
	Tolerance float64
}

// Policy allows a change within a period.
type Policy struct {
	Type   PolicyType
	Value  int
	Period machine.Time
}

// PolicyType is the unit of a policy's value.
type PolicyType string

// The types of policies.
const (
	Pods    PolicyType = "Pods"
	Percent PolicyType = "Percent"
)

// SelectPolicy selects one of several policies.
type SelectPolicy string

// The selections.
const (
	MaxChange SelectPolicy = "Max"
	MinChange SelectPolicy = "Min"
	Disabled  SelectPolicy = "Disabled"
)

// DefaultTolerance is kube-controller-manager's --horizontal-pod-autoscaler-tolerance.
const DefaultTolerance = 0.1

// DefaultBehavior returns the defaults of autoscaling/v2.
func DefaultBehavior() Behavior {
	return Behavior{
		Up: Rules{Policies: []Policy{{Pods, 4, 15 * machine.Second}, {Percent, 100, 15 * machine.Second}},
			SelectPolicy: MaxChange, Tolerance: DefaultTolerance},
		Down: Rules{Window: 300 * machine.Second, Policies: []Policy{{Percent, 100, 15 * machine.Second}},
			SelectPolicy: MaxChange, Tolerance: DefaultTolerance},
	}
}

// within reports whether a ratio of figure to target calls for no change.
func (b *Behavior) within(ratio float64) bool {
	return 1-b.Down.Tolerance <= ratio && ratio <= 1+b.Up.Tolerance
}

// replicas returns the replicas that an External metric asks for: AverageValue relates to the existing replicas, Value
// to the ready ones.
func (b *Behavior) replicas(kind TargetKind, figure, target int64, spec, have, ready int) int {
	if kind == AverageValue {
		ratio := float64(figure) / (float64(target) * float64(have))
		if b.within(ratio) {
			return have
		}
		return ceil(float64(figure) / float64(target))
	}
	ratio := float64(figure) / float64(target)
	switch {
	case spec == 0:
		return ceil(ratio)
	case b.within(ratio):
		return spec
	}
	return ceil(ratio * float64(ready))
}

// perPod returns the replicas that a Pods metric asks for. figures are the pods' figures, missing is the number of
// running pods without one, and unready the number of starting pods. Missing pods count as at their target if the
// number would fall, and as idle if it would rise.
func (b *Behavior) perPod(figures []int64, target int64, spec, missing, unready int) (replicas int, ok bool) {
	if len(figures) == 0 {
		return 0, false
	}
	sum := int64(0)
	for _, f := range figures {
		sum += f
	}
	ratio := float64(sum/int64(len(figures))) / float64(target)
	up := ratio > 1
	if missing == 0 && (unready == 0 || !up) {
		if b.within(ratio) {
			return spec, true
		}
		return ceil(ratio * float64(len(figures))), true
	}
	count := len(figures)
	if ratio != 1 {
		count += missing
	}
	if ratio < 1 {
		sum += int64(missing) * target
	}
	if unready > 0 && up {
		count += unready
	}
	again := float64(sum/int64(count)) / float64(target)
	if b.within(again) || ratio < 1 && again > 1 || ratio > 1 && again < 1 {
		return spec, true
	}
	n := ceil(again * float64(count))
	if again < 1 && n > spec || again > 1 && n < spec {
		return spec, true
	}
	return n, true
}

// most is Kubernetes' largest number of replicas.
const most = math.MaxInt32

func ceil(x float64) int {
	if !(x < most) {
		return most
	}
	return int(math.Ceil(x))
}

// change is a past change of the number of replicas.
type change struct {
	at machine.Time
	by int
}

// recommendation is a computed number of replicas.
type recommendation struct {
	at machine.Time
	to int
}

// memory holds the HPA's recent recommendations and changes.
type memory struct {
	recommended []recommendation
	ups, downs  []change
}

// stabilized returns the number of replicas after the windows, for the recommendation to.
func (m *memory) stabilized(now machine.Time, b *Behavior, current, to int) int {
	if m.recommended == nil { // at the beginning
		m.recommended = []recommendation{{now, current}}
	}
	up, down, kept := to, to, m.recommended[:0]
	for _, r := range m.recommended {
		if r.at > now-b.Up.Window {
			up = min(up, r.to)
		}
		if r.at > now-b.Down.Window {
			down = max(down, r.to)
		}
		if r.at > now-max(b.Up.Window, b.Down.Window) {
			kept = append(kept, r)
		}
	}
	m.recommended = append(kept, recommendation{now, to})
	return min(max(current, up), down)
}

// limited bounds a change by the policies, and by least and greatest.
func (m *memory) limited(now machine.Time, b *Behavior, current, to, least, greatest int) int {
	switch {
	case to > current:
		return min(to, max(current, m.reach(now, &b.Up, current, 1)), greatest)
	case to < current:
		return max(to, min(current, m.reach(now, &b.Down, current, -1)), least)
	}
	return to
}

// reach returns how far the policies allow the number to change: up with sign 1, down with sign -1.
func (m *memory) reach(now machine.Time, r *Rules, current, sign int) int {
	if r.SelectPolicy == Disabled {
		return current
	}
	limit := 0
	for i, p := range r.Policies {
		began := current - within(m.ups, now, p.Period) + within(m.downs, now, p.Period)
		to := began + sign*p.Value
		if by := float64(began) * (1 + float64(sign*p.Value)/100); p.Type == Percent && sign > 0 {
			to = ceil(by)
		} else if p.Type == Percent {
			to = int(by)
		}
		if further := sign*to > sign*limit; i == 0 || to != limit && further != (r.SelectPolicy == MinChange) {
			limit = to
		}
	}
	return limit
}

// within returns the sum of the changes within a period.
func within(list []change, now, period machine.Time) (sum int) {
	for _, c := range list {
		if c.at > now-period {
			sum += c.by
		}
	}
	return sum
}

// changed adds a change, and drops those that no policy counts any more.
func (m *memory) changed(now machine.Time, b *Behavior, from, to int) {
	longest := machine.Time(0)
	for _, r := range []*Rules{&b.Up, &b.Down} {
		for _, p := range r.Policies {
			longest = max(longest, p.Period)
		}
	}
	old := func(c change) bool { return c.at <= now-longest }
	m.ups, m.downs = slices.DeleteFunc(m.ups, old), slices.DeleteFunc(m.downs, old)
	if to > from {
		m.ups = append(m.ups, change{now, to - from})
	} else if to < from {
		m.downs = append(m.downs, change{now, from - to})
	}
}
