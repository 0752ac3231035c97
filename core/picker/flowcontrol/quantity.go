package flowcontrol

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
)

// errQuantity is the text with which Kubernetes, and so the real picker,
// refuses a quantity.
var errQuantity = errors.New("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")

// longest quantity that is read; Kubernetes' own never need more digits.
const maxQuantity = 64

// ParseQuantity reads a Kubernetes quantity ("1G", "512Mi", "5e3", "100m") as
// a whole number, rounded away from zero, as limits in requests and bytes are
// read. A value beyond 64 bits becomes the largest (or smallest) one.
func ParseQuantity(text string) (int64, error) {
	if text == "" || len(text) > maxQuantity {
		return 0, errQuantity
	}
	end := strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune("+-.0123456789", r) })
	number, suffix := text, ""
	if end >= 0 {
		number, suffix = text[:end], text[end:]
	}
	scale, ok := quantityScale(suffix)
	if !ok || strings.LastIndexAny(number, "+-") > 0 || strings.Count(number, ".") > 1 || !strings.ContainsAny(number, "0123456789") {
		return 0, errQuantity
	}
	// A bare point needs a digit on each side for big.Rat.
	sign := ""
	if number[0] == '+' || number[0] == '-' {
		sign, number = number[:1], number[1:]
	}
	whole, part, _ := strings.Cut(number, ".")
	value, ok := new(big.Rat).SetString(sign + "0" + whole + "." + part + "0")
	if !ok {
		return 0, errQuantity
	}
	return roundAway(value.Mul(value, scale)), nil
}

// quantityScale is the factor of a suffix: decimal (k, M, …; n, u, m), binary
// (Ki, Mi, …) or an exponent (e3, E-2).
func quantityScale(suffix string) (*big.Rat, bool) {
	if suffix == "" {
		return big.NewRat(1, 1), true
	}
	if i := strings.Index("numkMGTPE", suffix); len(suffix) == 1 && i >= 0 {
		power := []int{-9, -6, -3, 3, 6, 9, 12, 15, 18}[i]
		return tenTo(power), true
	}
	if i := strings.Index("KMGTPE", suffix[:1]); len(suffix) == 2 && suffix[1] == 'i' && i >= 0 {
		return new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(10*(i+1)))), true
	}
	if suffix[0] == 'e' || suffix[0] == 'E' {
		power, err := strconv.ParseInt(suffix[1:], 10, 16)
		if err != nil || power < -64 || power > 64 {
			return nil, false
		}
		return tenTo(int(power)), true
	}
	return nil, false
}

func tenTo(power int) *big.Rat {
	n := power
	if n < 0 {
		n = -n
	}
	f := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	if power < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), f)
	}
	return new(big.Rat).SetInt(f)
}

func roundAway(v *big.Rat) int64 {
	quotient, rest := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int))
	if rest.Sign() != 0 {
		quotient.Add(quotient, big.NewInt(int64(v.Sign())))
	}
	if quotient.IsInt64() {
		return quotient.Int64()
	}
	if v.Sign() < 0 {
		return -1 << 63
	}
	return 1<<63 - 1
}
