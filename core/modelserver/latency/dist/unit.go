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

// about holds what users read about a unit.
type about struct {
	limit    int64  // the largest value in a text, which keeps every sum of a run far from overflow
	one      string // describes one value
	expected string // describes the forms of a distribution in short
	forms    string // lists them
}

var units = [...]about{
	Nanoseconds: {int64(1000 * time.Hour), "a duration such as 50ms, 1.5s or 200us",
		"a duration such as 50ms, a range such as 100ms..30s, 50ms±10%, or a distribution such as " +
			"lognormal(50ms, 20ms)", DistHelp},
	Count: {1e12, "a number such as 128",
		"a number such as 128, a range such as 16..512, or a distribution such as lognormal(200, 150, max=4096)",
		`"128", "16..512" (uniform), "128±10%" or "128±8" (uniform), "normal(200, 20)", "lognormal(200, 150)", ` +
			`"exponential(100)", "pareto(16, 2.5)", "empirical(16*3, 512)", each with min= and max= if wanted`},
	Millionths: {1e9, "a factor such as 1.2 or 120%",
		"a factor such as 1.2, 0.9..1.1, 1±10%, or a distribution such as lognormal(1, 0.05)",
		`"1.2", "0.9..1.1" (uniform), "1±10%" (uniform), "normal(1, 0.1)", "lognormal(1, 0.05)", ` +
			`"exponential(1)", "pareto(0.9, 2.5)", "empirical(1*9, 3)", each with min= and max= if wanted`},
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
				return 0, fmt.Errorf("%q has no unit; expected %s", text, units[u].one)
			}
			if tooLong(text) {
				return 0, fmt.Errorf("%q is above the limit of %s", text, u.format(float64(units[u].limit)))
			}
			return 0, fmt.Errorf("%q is not %s", text, units[u].one)
		}
		v = float64(d)
	default:
		number, percent := strings.CutSuffix(text, "%")
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || (percent && u != Millionths) {
			return 0, fmt.Errorf("%q is not %s", text, units[u].one)
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
		return 0, fmt.Errorf("%q is negative; expected %s", text, units[u].one)
	}
	if v > float64(units[u].limit) {
		return 0, fmt.Errorf("%q is above the limit of %s", text, u.format(float64(units[u].limit)))
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
