package machine

import (
	"math"
	"math/bits"
)

// MulDiv returns a*b/c rounded down, with a 128-bit product, for a, b >= 0 and
// c > 0. It saturates instead of overflowing.
func MulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi == 0 && lo <= math.MaxInt64 {
		return int64(lo) / c
	}
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// MulDivUp is MulDiv rounded up.
func MulDivUp(a, b, c int64) int64 {
	q := MulDiv(a, b, c)
	if q == math.MaxInt64 {
		return q
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	back, backLo := bits.Mul64(uint64(q), uint64(c))
	if hi != back || lo != backLo {
		q++
	}
	return q
}
