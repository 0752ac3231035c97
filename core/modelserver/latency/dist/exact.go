package dist

import "math"

// Go may fuse x*y+z into one rounding on some processors and not on others, and on some processors math.Exp and
// math.Log have assembly of their own. A draw must be the same nanosecond everywhere. The few functions needed are
// therefore written here with every product rounded on its own: an explicit float64 conversion prevents fusing.

func mul(a, b float64) float64 { return float64(a * b) }

const (
	ln2High = 6.93147180369123816490e-01
	ln2Low  = 1.90821492927058770002e-10
)

// exactExp returns e to the x, to about 1e-15. Beyond ±700 it saturates.
func exactExp(x float64) float64 {
	switch {
	case x > 700:
		x = 700
	case x < -700:
		return 0
	}
	k := math.Floor(mul(x, 1/math.Ln2) + 0.5)
	r := float64(x-mul(k, ln2High)) - mul(k, ln2Low)
	sum := 1.0
	for n := len(inverse) - 1; n >= 1; n-- { // Taylor, |r| <= 0.347
		sum = 1 + mul(mul(r, inverse[n]), sum)
	}
	if k > -1000 && k < 1000 {
		return mul(sum, math.Float64frombits(uint64(int(k)+1023)<<52)) // 2 to the k: it rounds nothing
	}
	return math.Ldexp(sum, int(k))
}

// inverse holds 1/n, as far as it matters.
var inverse = [...]float64{0, 1, 1. / 2, 1. / 3, 1. / 4, 1. / 5, 1. / 6, 1. / 7, 1. / 8, 1. / 9, 1. / 10, 1. / 11,
	1. / 12, 1. / 13, 1. / 14}

// exactLog returns the natural logarithm of a positive x, to about 1e-15.
func exactLog(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	s := (m - 1) / (m + 1) // |s| <= 0.172; log m = 2 artanh s
	s2, sum := mul(s, s), 0.0
	for n := 23; n >= 1; n -= 2 {
		sum = 1/float64(n) + mul(s2, sum)
	}
	return mul(float64(e), ln2High) + float64(mul(float64(e), ln2Low)+mul(mul(2, s), sum))
}

// Rational approximation of the normal quantile by P. J. Acklam (2003),
// relative error below 1.2e-9.
var (
	probitA = [...]float64{-3.969683028665376e+01, 2.209460984245205e+02, -2.759285104469687e+02, 1.383577518672690e+02,
		-3.066479806614716e+01, 2.506628277459239e+00}
	probitB = [...]float64{-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01,
		-1.328068155288572e+01, 1}
	probitC = [...]float64{-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
		-2.549732539343734e+00, 4.374664141464968e+00, 2.938163982698783e+00}
	probitD = [...]float64{7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00,
		1}
)

// exactProbit returns the value that a standard normal variable stays below with probability u, for u strictly between
// 0 and 1.
func exactProbit(u float64) float64 {
	const tail = 0.02425
	switch {
	case u < tail:
		q := math.Sqrt(mul(-2, exactLog(u)))
		return horner(probitC[:], q) / horner(probitD[:], q)
	case u > 1-tail:
		q := math.Sqrt(mul(-2, exactLog(1-u)))
		return -horner(probitC[:], q) / horner(probitD[:], q)
	}
	q := u - 0.5
	r := mul(q, q)
	return mul(horner(probitA[:], r), q) / horner(probitB[:], r)
}

func horner(coefficients []float64, x float64) float64 {
	sum := 0.0
	for _, c := range coefficients {
		sum = mul(sum, x) + c
	}
	return sum
}

// Exp, Log and Normal are for draws in other packages. They return e to the x, the natural logarithm of a positive x,
// and the value that a standard normal variable stays below with probability u (above 0, below 1). The results are the
// same on every processor.
func Exp(x float64) float64    { return exactExp(x) }
func Log(x float64) float64    { return exactLog(x) }
func Normal(u float64) float64 { return exactProbit(u) }
