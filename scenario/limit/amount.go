package limit

import (
	"fmt"
	"strconv"
	"strings"
)

// Amount is a count of requests or a share of all of them, or a range of
// either: 3, 0..2, 100%, 95%..100%. The zero value expects nothing.
type Amount struct {
	Given     bool
	Share     bool
	Low, High float64 // requests, or percent
}

const amountHelp = "a count such as 3 or 0..2, or a share such as 100% or 95%..100%"

// ParseAmount reads an amount.
func ParseAmount(text string) (Amount, error) {
	a := Amount{Given: true, Share: strings.HasSuffix(text, "%")}
	low, high, ranged := strings.Cut(text, "..")
	if !ranged {
		high = low
	}
	var err error
	if a.Low, err = a.parse(low); err == nil {
		a.High, err = a.parse(high)
	}
	if err != nil || a.Low > a.High {
		return Amount{}, fmt.Errorf("%q is not %s", text, amountHelp)
	}
	return a, nil
}

// UnmarshalText reads what ParseAmount reads.
func (a *Amount) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAmount(string(text))
	return err
}

// Expected describes a valid amount, for errors.
func (Amount) Expected() string { return amountHelp }

func (a Amount) parse(text string) (float64, error) {
	if a.Share {
		number, ok := strings.CutSuffix(text, "%")
		f, err := strconv.ParseFloat(number, 64)
		if !ok || err != nil || !(f >= 0 && f <= 100) {
			return 0, fmt.Errorf("%q is not a percentage", text)
		}
		return f, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return float64(n), err
}

// String writes the amount so that ParseAmount reads it back.
func (a Amount) String() string {
	unit := ""
	if a.Share {
		unit = "%"
	}
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) + unit }
	if a.Low == a.High {
		return f(a.Low)
	}
	return f(a.Low) + ".." + f(a.High)
}

// Holds reports whether n of all requests are this amount, and returns n as a count or a share.
func (a Amount) Holds(n, all int) (found string, ok bool) {
	v := float64(n)
	if !a.Share {
		return strconv.Itoa(n), v >= a.Low && v <= a.High
	}
	if all == 0 {
		return "no requests", false
	}
	v = 100 * v / float64(all)
	return strconv.FormatFloat(v, 'f', -1, 32) + "%", v >= a.Low && v <= a.High
}
