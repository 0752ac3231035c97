package config

import (
	"fmt"
	"math/big"
	"regexp"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// FromScalar reads a Go duration.
func (d *Duration) FromScalar(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%w; expected a duration such as 500ms or 1m", err)
	}
	*d = Duration(v)
	return nil
}

// Time is the span in nanoseconds.
func (d Duration) Time() machine.Time { return machine.Time(d) }

// Quantity is a Kubernetes resource quantity ("1G", "512Mi", "5k"), rounded up
// to a whole number.
type Quantity int64

var quantity = regexp.MustCompile(`^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,3})?$`)

var scales = map[string]*big.Rat{
	"": big.NewRat(1, 1), "m": big.NewRat(1, 1000), "k": big.NewRat(1e3, 1), "M": big.NewRat(1e6, 1), "G": big.NewRat(1e9, 1),
	"T": big.NewRat(1e12, 1), "P": big.NewRat(1e15, 1), "E": big.NewRat(1e18, 1),
	"Ki": big.NewRat(1<<10, 1), "Mi": big.NewRat(1<<20, 1), "Gi": big.NewRat(1<<30, 1), "Ti": big.NewRat(1<<40, 1),
	"Pi": big.NewRat(1<<50, 1), "Ei": big.NewRat(1<<60, 1),
}

// FromScalar reads a quantity.
func (q *Quantity) FromScalar(text string) error {
	m := quantity.FindStringSubmatch(text)
	if m == nil || len(text) > 64 {
		return fmt.Errorf("%q is not a quantity; expected a number with an optional suffix, such as 5000, 1G or 512Mi", text)
	}
	v, ok := new(big.Rat).SetString(m[1])
	scale := scales[m[2]]
	if ok && scale == nil {
		scale, ok = new(big.Rat).SetString("1" + m[2])
	}
	if !ok {
		return fmt.Errorf("%q is not a quantity", text)
	}
	v.Mul(v, scale)
	n, rest := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() {
		return fmt.Errorf("%q is beyond 2^63", text)
	}
	*q = Quantity(n.Int64())
	return nil
}
