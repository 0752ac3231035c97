package latency

import (
	"math"
	"math/bits"
)

// mulDiv is a*b/c rounded down, with a 128-bit product, for a, b >= 0 and
// c > 0. It saturates instead of overflowing.
func mulDiv(a, b, c int64) int64 {
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

// mulDivUp is mulDiv rounded up.
func mulDivUp(a, b, c int64) int64 {
	q := mulDiv(a, b, c)
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

// floorDiv rounds towards minus infinity, for b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }
