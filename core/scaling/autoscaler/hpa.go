package autoscaler

import (
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
)

// The HorizontalPodAutoscaler's arithmetic. Figures are in thousandths, as Kubernetes'
// quantities of metrics are.

// TargetKind is what a metric is held against.
type TargetKind string

// The kinds of targets.
const (
	// AverageValue is a target for each replica: the figure is divided by them.
	AverageValue TargetKind = "AverageValue"
	// Value is a target for the figure itself.
	Value TargetKind = "Value"
)

// Behavior says how fast the number of replicas may change.
type Behavior struct{ Up, Down Rules }

// Rules are those of one direction.
type Rules struct {
	// Window is for how long recommendations are looked back at: up goes to the lowest of
	// them, down to the highest.
	Window machine.Time
	// Policies each allow so much change; SelectPolicy says which of them counts.
	Policies     []Policy
	SelectPolicy SelectPolicy
	// Tolerance is how far the ratio of figure to target may be from 1 without any change.
	Tolerance float64
}

// Policy allows a change within a period.
type Policy struct {
	Type   PolicyType
	Value  int
	Period machine.Time
}

// PolicyType is what a policy's value counts.
type PolicyType string

// The types of policies.
const (
	Pods    PolicyType = "Pods"
	Percent PolicyType = "Percent"
)

// SelectPolicy is which of several policies counts.
type SelectPolicy string

// The selections.
const (
	MaxChange SelectPolicy = "Max"
	MinChange SelectPolicy = "Min"
	Disabled  SelectPolicy = "Disabled"
)

// DefaultTolerance is kube-controller-manager's --horizontal-pod-autoscaler-tolerance.
const DefaultTolerance = 0.1

// DefaultBehavior is autoscaling/v2's.
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

// replicas are what an External metric asks for: of AverageValue by the replicas that there
// are, of Value by those that are ready.
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

// perPod are what a Pods metric asks for: figures are those of the pods that told one,
// missing how many that run told none, and unready how many are still to come. Those
// that are missing count as at their target where there would be fewer replicas, and as idle
// where there would be more.
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

// change is one that was made.
type change struct {
	at machine.Time
	by int
}

// recommendation is one that was worked out.
type recommendation struct {
	at machine.Time
	to int
}

// memory is what an HPA remembers of recommendations and changes.
type memory struct {
	recommended []recommendation
	ups, downs  []change
}

// stabilized returns the number of replicas to go to where to was worked out.
func (m *memory) stabilized(now machine.Time, b *Behavior, current, to int) int {
	if m.recommended == nil { // as it begins
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

// limited is as much of a change as the policies allow, and the bounds.
func (m *memory) limited(now machine.Time, b *Behavior, current, to, least, greatest int) int {
	switch {
	case to > current:
		return min(to, max(current, m.upTo(now, &b.Up, current)), greatest)
	case to < current:
		return max(to, min(current, m.downTo(now, &b.Down, current)), least)
	}
	return to
}

func (m *memory) upTo(now machine.Time, r *Rules, current int) int {
	if r.SelectPolicy == Disabled {
		return current
	}
	limit := 0
	for i, p := range r.Policies {
		began := current - within(m.ups, now, p.Period) + within(m.downs, now, p.Period)
		to := began + p.Value
		if p.Type == Percent {
			to = ceil(float64(began) * (1 + float64(p.Value)/100))
		}
		if i == 0 || r.SelectPolicy == MinChange && to < limit || r.SelectPolicy != MinChange && to > limit {
			limit = to
		}
	}
	return limit
}

func (m *memory) downTo(now machine.Time, r *Rules, current int) int {
	if r.SelectPolicy == Disabled {
		return current
	}
	limit := 0
	for i, p := range r.Policies {
		began := current + within(m.downs, now, p.Period) - within(m.ups, now, p.Period)
		to := began - p.Value
		if p.Type == Percent {
			to = int(float64(began) * (1 - float64(p.Value)/100))
		}
		if i == 0 || r.SelectPolicy == MinChange && to > limit || r.SelectPolicy != MinChange && to < limit {
			limit = to
		}
	}
	return limit
}

// within returns how much was changed within a period.
func within(list []change, now, period machine.Time) (sum int) {
	for _, c := range list {
		if c.at > now-period {
			sum += c.by
		}
	}
	return sum
}

// changed remembers a change.
func (m *memory) changed(now machine.Time, b *Behavior, from, to int) {
	longest := machine.Time(0)
	for _, r := range []*Rules{&b.Up, &b.Down} {
		for _, p := range r.Policies {
			longest = max(longest, p.Period)
		}
	}
	keep := func(list []change) []change {
		out := list[:0]
		for _, c := range list {
			if c.at > now-longest {
				out = append(out, c)
			}
		}
		return out
	}
	m.ups, m.downs = keep(m.ups), keep(m.downs)
	if to > from {
		m.ups = append(m.ups, change{now, to - from})
	} else if to < from {
		m.downs = append(m.downs, change{now, from - to})
	}
}
