package config

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Quantity is a Kubernetes resource quantity ("1G", "512Mi", "5k") as a whole
// number.
type Quantity int64

// UnmarshalText reads a quantity.
func (q *Quantity) UnmarshalText(text []byte) error {
	n, err := ParseQuantity(string(text))
	*q = Quantity(n)
	return err
}

// Expected describes a quantity's form, for errors.
func (Quantity) Expected() string {
	return "a number with an optional suffix, such as 5000, 1G or 512Mi"
}

// Value returns the number; 0 for nil.
func (q *Quantity) Value() int64 {
	if q == nil {
		return 0
	}
	return int64(*q)
}

var quantity = regexp.MustCompile(`^([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]+)$`)

// maxExponent is larger than any exponent that makes a difference to a number of 64 digits.
const maxExponent = 200

// ParseQuantity reads a quantity by the rules that Kubernetes documents for resource.Quantity. It rounds a fraction
// away from zero, and a number beyond 63 bits to the largest one within.
func ParseQuantity(text string) (int64, error) {
	m := quantity.FindStringSubmatch(text)
	if m == nil || len(text) > 64 {
		return 0, fmt.Errorf("%.80q is not a quantity; expected a number with an optional suffix, such as 5000, 1G "+
			"or 512Mi", text)
	}
	v, _ := new(big.Rat).SetString(m[2]) // the expression guarantees its form
	switch suffix := m[3]; {
	case suffix == "":
	case len(suffix) == 2 && suffix[1] == 'i':
		v.Mul(v, new(big.Rat).SetInt64(1<<(10*(1+strings.IndexByte("KMGTPE", suffix[0])))))
	case len(suffix) == 1:
		v.Mul(v, tenTo(3*strings.IndexByte("num.kMGTPE", suffix[0])-9))
	default:
		e, err := strconv.Atoi(suffix[1:])
		if err != nil { // longer than an int
			e = maxExponent
			if suffix[1] == '-' {
				e = -maxExponent
			}
		}
		v.Mul(v, tenTo(min(max(e, -maxExponent), maxExponent)))
	}
	n, rest := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	out := int64(math.MaxInt64)
	if n.IsInt64() {
		out = n.Int64()
	}
	if m[1] == "-" {
		out = -out
	}
	return out, nil
}

func tenTo(power int) *big.Rat {
	v := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(power, -power))), nil))
	if power < 0 {
		v.Inv(v)
	}
	return v
}
