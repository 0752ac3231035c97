package dist

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unit is the meaning of a Dist's whole numbers.
type Unit uint8

// The units of a Dist.
const (
	Nanoseconds Unit = iota // written with a unit: 50ms, 1.5s
	Count                   // written plainly: 128 (tokens, requests)
	Millionths              // a factor, written plainly or in percent: 1.2, 120%
)

// limit returns the largest value in a text. It keeps every sum of a run far from overflow.
func (u Unit) limit() int64 {
	switch u {
	case Count:
		return 1e12
	case Millionths:
		return 1e9 // a factor of one thousand
	}
	return int64(1000 * time.Hour)
}

func (u Unit) expected() string {
	switch u {
	case Count:
		return "a number such as 128"
	case Millionths:
		return "a factor such as 1.2 or 120%"
	}
	return "a duration such as 50ms, 1.5s or 200us"
}

// parse parses one value in the unit's base. It refuses negative and absurdly large values.
func (u Unit) parse(text string) (float64, error) {
	text = strings.TrimSpace(text)
	var v float64
	switch u {
	case Nanoseconds:
		d, err := time.ParseDuration(text)
		if err != nil {
			if _, plain := strconv.ParseFloat(text, 64); plain == nil && text != "0" {
				return 0, fmt.Errorf("%q has no unit; expected %s", text, u.expected())
			}
			if tooLong(text) {
				return 0, fmt.Errorf("%q is above the limit of %s", text, u.format(float64(u.limit())))
			}
			return 0, fmt.Errorf("%q is not %s", text, u.expected())
		}
		v = float64(d)
	default:
		number, percent := strings.CutSuffix(text, "%")
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || (percent && u != Millionths) {
			return 0, fmt.Errorf("%q is not %s", text, u.expected())
		}
		if percent {
			f /= 100
		}
		if u == Millionths {
			f = math.Round(mul(f, 1e6))
		}
		v = f
	}
	if v < 0 {
		return 0, fmt.Errorf("%q is negative; expected %s", text, u.expected())
	}
	if v > float64(u.limit()) {
		return 0, fmt.Errorf("%q is above the limit of %s", text, u.format(float64(u.limit())))
	}
	return v, nil
}

// tooLong reports whether a text is a duration except for its size: 9999999h is 1,141 years, more than a time.Duration
// holds.
func tooLong(text string) bool {
	number := strings.TrimRight(text, "nuµmsh")
	f, err := strconv.ParseFloat(number, 64)
	_, unit := time.ParseDuration("1" + text[len(number):])
	return err == nil && unit == nil && f > 0 && !math.IsInf(f, 0) && !strings.ContainsAny(number, "eE")
}

func (u Unit) format(v float64) string {
	switch u {
	case Count:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case Millionths:
		return strconv.FormatFloat(v/1e6, 'f', -1, 64)
	}
	return time.Duration(math.Round(v)).String()
}
