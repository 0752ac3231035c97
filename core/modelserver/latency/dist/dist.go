package dist

import (
	"fmt"
	"math"
	"sort"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Family names the family of a Dist.
type Family uint8

// The families that ParseUnit knows.
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

// String returns the name that ParseUnit accepts.
func (f Family) String() string { return familyNames[f] }

// Dist is a distribution of whole, never negative values: nanoseconds, counts or millionths, depending on its Unit.
// Each value takes one keyed draw through the quantile function, so that other draws of a scenario do not change it.
//
// Limits cut the distribution and do not clamp it: instead of moving a value outside min and max to the edge, Dist
// draws from the rest of the curve. Parsing refuses limits that would distort the distribution too much.
//
// The zero value is the constant 0.
type Dist struct {
	unit   Unit
	family Family
	a, b   float64 // the family's parameters, in the unit's base
	mu     float64 // lognormal: mean and deviation of the logarithm
	sigma  float64
	lo, hi int64   // values are never outside
	cutLow bool    // the text has a lower limit
	cutTop bool    // the text has an upper limit
	u0, du float64 // the part of the quantile function between lo and hi
	values []weighted
}

type weighted struct {
	value  int64
	weight int64
	below  int64 // sum of the weights before it
}

// maxEmpirical limits the number of values of an empirical distribution.
const maxEmpirical = 100_000

// Fixed returns the distribution that always draws d.
func Fixed(d machine.Time) Dist {
	return Dist{family: FamilyConstant, a: float64(d), lo: int64(d), hi: int64(d)}
}

// Between returns the uniform distribution of the spans from low to high, both included.
func Between(low, high machine.Time) Dist {
	return Dist{family: FamilyUniform, a: float64(low), b: float64(high), lo: int64(low), hi: int64(high)}
}

// Family returns the family of the distribution.
func (d Dist) Family() Family { return d.family }

// Unit returns the unit of the values.
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

// SampleTime draws one value of a distribution of spans.
func (d *Dist) SampleTime(draw *machine.Draw) machine.Time { return machine.Time(d.Sample(draw)) }

// Quantile returns the value below which a share p of the draws falls. If p is outside 0..1, it takes the nearer end.
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

// Mean returns the average of the draws, with limits. For the curved families it integrates over 4,096 quantiles.
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

// Moments returns the mean and the standard deviation. For the normal and the lognormal family, they are the parameters
// in the text, before limits cut the curve.
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

// at returns the quantile within the limits. Rounding may exceed a limit by less than one unit, which at corrects.
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

// limit keeps the part of the curve between lo and hi, and refuses limits that leave almost nothing of it.
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

// below returns the share of the uncut curve under x, by bisection, which is the same on every processor and for all
// families.
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
