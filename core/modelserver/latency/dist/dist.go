package dist

import (
	"fmt"
	"math"
	"sort"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Family names the family of a Dist.
type Family uint8

// The families that ParseDist knows.
const (
	FamilyConstant Family = iota
	FamilyUniform
	FamilyNormal
	FamilyLognormal
	FamilyExponential
	FamilyPareto
	FamilyEmpirical
)

var familyNames = [...]string{"constant", "uniform", "normal", "lognormal", "exponential", "pareto", "empirical"}

// String is the name that ParseDist reads.
func (f Family) String() string { return familyNames[f] }

// Dist is a distribution of whole, never negative values: nanoseconds, counts
// or millionths, as its Unit says. It is sampled through its quantile function
// with one keyed draw per value, so a scenario's other draws never move.
//
// Limits cut the distribution, they do not clamp it: a value outside min and
// max is not moved to the edge, the rest of the curve is drawn instead. A Dist
// that this would bend out of recognition is refused when it is read.
//
// The zero value is the constant 0.
type Dist struct {
	unit   Unit
	family Family
	a, b   float64 // the family's parameters, in the unit's base
	mu     float64 // lognormal: mean and deviation of the logarithm
	sigma  float64
	lo, hi int64   // values are never outside
	cutLow bool    // whether lo was asked for
	cutTop bool    // whether hi was asked for
	u0, du float64 // the part of the quantile function between lo and hi
	values []weighted
}

type weighted struct {
	value  int64
	weight int64
	below  int64 // sum of the weights before it
}

// maxEmpirical is how many values an empirical distribution may list.
const maxEmpirical = 100_000

// Fixed is the distribution that always gives d.
func Fixed(d machine.Time) Dist {
	return Dist{family: FamilyConstant, a: float64(d), lo: int64(d), hi: int64(d)}
}

// Between is the uniform distribution of the spans from low to high, both
// included.
func Between(low, high machine.Time) Dist {
	return Dist{family: FamilyUniform, a: float64(low), b: float64(high), lo: int64(low), hi: int64(high)}
}

// Family is the family that the distribution belongs to.
func (d Dist) Family() Family { return d.family }

// Unit is what the distribution's values count.
func (d Dist) Unit() Unit { return d.unit }

// IsConstant reports whether every draw gives the same value.
func (d Dist) IsConstant() bool { return d.lo == d.hi }

// Sample draws one value.
func (d *Dist) Sample(draw *machine.Draw) int64 {
	switch d.family {
	case FamilyConstant:
		return d.lo
	case FamilyUniform:
		return int64(draw.Between(machine.Time(d.lo), machine.Time(d.hi)))
	case FamilyEmpirical:
		return d.pick(int64(draw.Uint64() % uint64(d.totalWeight())))
	}
	u := (float64(draw.Uint64()>>12) + 0.5) / (1 << 52) // never 0, never 1
	return d.at(u)
}

// SampleTime is Sample of a distribution of spans.
func (d *Dist) SampleTime(draw *machine.Draw) machine.Time { return machine.Time(d.Sample(draw)) }

// Quantile is the value below which a share p of the draws falls; p outside
// 0..1 is taken as the nearer end.
func (d *Dist) Quantile(p float64) int64 {
	switch {
	case !(p > 0):
		p = 0x1p-53
	case p >= 1:
		p = 1 - 0x1p-53
	}
	switch d.family {
	case FamilyConstant:
		return d.lo
	case FamilyUniform:
		return d.lo + int64(mul(p, float64(d.hi-d.lo))+0.5)
	case FamilyEmpirical:
		return d.pick(int64(mul(p, float64(d.totalWeight()))))
	}
	return d.at(p)
}

// Mean is the average of the draws, limits included; for the curved families
// it is integrated over 4,096 quantiles.
func (d *Dist) Mean() float64 {
	switch d.family {
	case FamilyConstant, FamilyUniform:
		return float64(d.lo)/2 + float64(d.hi)/2
	case FamilyEmpirical:
		sum := 0.0
		for _, v := range d.values {
			sum += mul(float64(v.value), float64(v.weight))
		}
		return sum / float64(d.totalWeight())
	}
	const n = 4096
	sum := 0.0
	for i := range n {
		sum += float64(d.at((float64(i) + 0.5) / n))
	}
	return sum / n
}

// Moments are the mean and the standard deviation. Of the normal and the lognormal
// family they are those that it was written with, before limits cut it.
func (d *Dist) Moments() (mean, deviation float64) {
	switch d.family {
	case FamilyConstant:
		return float64(d.lo), 0
	case FamilyNormal, FamilyLognormal:
		return d.a, d.b
	}
	const n = 4096
	mean = d.Mean()
	sum := 0.0
	for i := range n {
		off := float64(d.Quantile((float64(i)+0.5)/n)) - mean
		sum += mul(off, off)
	}
	return mean, math.Sqrt(sum / n)
}

// at is the quantile within the limits. Rounding may overstep a limit by less
// than one unit, which is taken back here.
func (d *Dist) at(u float64) int64 {
	x := d.curve(d.u0 + mul(u, d.du))
	if !(x < float64(d.hi)) {
		return d.hi
	}
	return max(d.lo, int64(x+0.5))
}

// curve is the family's quantile function without limits.
func (d *Dist) curve(u float64) float64 {
	switch d.family {
	case FamilyNormal:
		return d.a + mul(d.b, exactProbit(u))
	case FamilyLognormal:
		return exactExp(d.mu + mul(d.sigma, exactProbit(u)))
	case FamilyExponential:
		return mul(-d.a, exactLog(1-u))
	case FamilyPareto:
		return mul(d.a, exactExp(-exactLog(1-u)/d.b))
	}
	return d.a
}

func (d *Dist) totalWeight() int64 {
	last := d.values[len(d.values)-1]
	return last.below + last.weight
}

func (d *Dist) pick(n int64) int64 {
	i := sort.Search(len(d.values), func(i int) bool { return d.values[i].below > n })
	return d.values[i-1].value
}

// limit keeps the part of the curve that lies between lo and hi, and refuses
// limits that leave next to nothing of it.
func (d *Dist) limit(lo, hi int64) error {
	if lo > hi {
		return fmt.Errorf("min %s is above max %s", d.unit.format(float64(lo)), d.unit.format(float64(hi)))
	}
	d.lo, d.hi = lo, hi
	u0, u1 := d.below(float64(lo)), 1.0
	if d.cutTop {
		u1 = d.below(float64(hi))
	}
	if d.family == FamilyNormal && !d.cutLow && u0 > 0.03 {
		return fmt.Errorf("%.2g %% of it would be below zero; use lognormal, which never is, or say min= to cut it",
			100*u0)
	}
	if u1-u0 < 0.01 {
		return fmt.Errorf("only %.2g %% of it lies within min and max; at least 1 %% must", 100*math.Max(0, u1-u0))
	}
	d.u0, d.du = u0, u1-u0
	return nil
}

// below is the share of the uncut curve under x, by bisection: the same on
// every processor, and one code for all families.
func (d *Dist) below(x float64) float64 {
	low, high := 0.0, 1.0
	for range 60 {
		mid := (low + high) / 2
		if mid <= low || mid >= high {
			break
		}
		if d.curve(mid) < x {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}
