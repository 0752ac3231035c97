package structured

import (
	"math"
	"math/big"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
)

// numbers holds the numbers that a JSON schema allows.
type numbers struct {
	integer   bool
	low, high *float64
	// withoutLow and withoutHigh exclude the bound itself.
	withoutLow, withoutHigh bool
	step                    *big.Rat // nil without multipleOf
}

// far is the largest absolute value that is drawn unless the schema asks for larger ones. Every program parses integers
// up to it exactly.
const far = 1 << 53

// bounds returns the limits of the draw: the schema's or, by default, the options'.
func (n *numbers) bounds(o *Options) (low, high float64) {
	low, high = float64(o.MinInteger), float64(o.MaxInteger)
	if !n.integer {
		low, high = o.MinNumber, o.MaxNumber
	}
	width := high - low
	switch {
	case n.low != nil && n.high != nil:
		return *n.low, *n.high
	case n.low != nil:
		if low = *n.low; high <= low {
			high = low + max(1, width)
		}
	case n.high != nil:
		if high = *n.high; low >= high {
			low = high - max(1, width)
		}
	}
	return low, high
}

// append appends a number.
func (n *numbers) append(b []byte, d *machine.Draw, o *Options) []byte {
	low, high := n.bounds(o)
	if n.step != nil {
		return n.multiple(b, d, low, high)
	}
	if n.integer {
		first, last := n.between(low, high, 1)
		return strconv.AppendInt(b, drawInt(d, first, last), 10)
	}
	if first, last := n.between(low, high, 1000); first <= last && math.Abs(low) < far/1000 &&
		math.Abs(high) < far/1000 {
		k := drawInt(d, first, last)
		return strconv.AppendFloat(b, float64(k)/1000, 'f', 3, 64)
	}
	v := low/2 + high/2
	if n.withoutLow && v <= low || n.withoutHigh && v >= high || v < low || v > high {
		v = low
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// between returns the first and the last whole number of parts, each one over per, within the bounds. If there is none,
// the first is larger than the last.
func (n *numbers) between(low, high, per float64) (first, last int64) {
	a, z := math.Ceil(low*per), math.Floor(high*per)
	if n.withoutLow && a == low*per {
		a++
	}
	if n.withoutHigh && z == high*per {
		z--
	}
	const most = math.MaxInt64 / 2
	return int64(max(-most, min(most, a))), int64(max(-most, min(most, z)))
}

func drawInt(d *machine.Draw, first, last int64) int64 {
	if last-first >= math.MaxInt32 {
		return first + int64(d.Uint64()%uint64(last-first+1))
	}
	return first + int64(d.Intn(int(max(0, last-first))+1))
}

// multiple appends a multiple of the step.
func (n *numbers) multiple(b []byte, d *machine.Draw, low, high float64) []byte {
	step, _ := n.step.Float64()
	if n.low == nil || n.high == nil { // a default range must contain a few
		if n.low != nil || n.high == nil {
			high = max(high, low+8*step)
		} else {
			low = min(low, high-8*step)
		}
	}
	first, last := n.between(low, high, 1/step)
	v := new(big.Rat).Mul(n.step, new(big.Rat).SetInt64(drawInt(d, first, last)))
	digits, _ := v.FloatPrec()
	return append(b, v.FloatString(digits)...)
}

// empty reports whether no number is allowed.
func (n *numbers) empty() bool {
	if n.low == nil || n.high == nil {
		return false
	}
	if n.step != nil {
		step, _ := n.step.Float64()
		first, last := n.between(*n.low, *n.high, 1/step)
		return first > last
	}
	if n.integer {
		first, last := n.between(*n.low, *n.high, 1)
		return first > last
	}
	return *n.low > *n.high || *n.low == *n.high && (n.withoutLow || n.withoutHigh)
}
