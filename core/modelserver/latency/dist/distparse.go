package dist

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// DistHelp lists the forms of a distribution, for error messages and help texts.
const DistHelp = `"50ms", "100ms..30s" (uniform), "50ms±10%" or "50ms±5ms" (uniform), "normal(50ms, 5ms)", ` +
	`"lognormal(50ms, 20ms)", "exponential(50ms)", "pareto(10ms, 2.5)", "empirical(10ms*3, 80ms)", each with min= ` +
	`and max= if wanted`

// Parse parses a distribution of spans, such as "100ms..30s" or "normal(50ms, 5ms, max=80ms)". DistHelp lists the
// forms. Means and standard deviations of the lognormal are those of the value itself, not of its logarithm.
func Parse(text string) (Dist, error) { return ParseUnit(Nanoseconds, text) }

// ParseCount parses a distribution of counts, such as "128", "16..512" or "lognormal(200, 150, max=4096)".
func ParseCount(text string) (Dist, error) { return ParseUnit(Count, text) }

// ParseUnit parses a distribution whose values have the given unit.
func ParseUnit(unit Unit, text string) (Dist, error) {
	d, err := parseText(unit, text)
	if err != nil {
		return Dist{}, fmt.Errorf("distribution %s: %w", clip(text), err)
	}
	return d, nil
}

func clip(text string) string {
	if len(text) > 80 {
		text = text[:77] + "..."
	}
	return strconv.Quote(text)
}

// formError reports a text that has none of the forms.
type formError struct {
	reason string
	unit   Unit
}

func (e formError) Error() string { return e.reason + ", or one of " + units[e.unit].forms }

func parseText(unit Unit, text string) (Dist, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return Dist{}, formError{"it is empty", unit}
	}
	if name, rest, ok := strings.Cut(text, "("); ok {
		arguments, closed := strings.CutSuffix(rest, ")")
		if !closed {
			return Dist{}, errors.New("the closing ) is missing")
		}
		return parseCall(unit, strings.TrimSpace(name), arguments)
	}
	if low, high, ok := strings.Cut(text, ".."); ok {
		return uniform(unit, low, high)
	}
	for _, sign := range []string{"±", "+/-", "+-"} {
		if centre, spread, ok := strings.Cut(text, sign); ok {
			return around(unit, centre, spread)
		}
	}
	v, err := unit.parse(text)
	if err != nil {
		return Dist{}, formError{err.Error(), unit}
	}
	return constant(unit, v), nil
}

func constant(unit Unit, v float64) Dist {
	n := int64(math.Round(v))
	return Dist{unit: unit, family: FamilyConstant, a: v, lo: n, hi: n}
}

func uniform(unit Unit, lowText, highText string) (Dist, error) {
	low, err := unit.parse(lowText)
	if err != nil {
		return Dist{}, fmt.Errorf("low end: %w", err)
	}
	high, err := unit.parse(highText)
	if err != nil {
		return Dist{}, fmt.Errorf("high end: %w", err)
	}
	if low > high {
		return Dist{}, fmt.Errorf("low end %s is above high end %s", unit.format(low), unit.format(high))
	}
	return Dist{unit: unit, family: FamilyUniform, a: low, b: high, lo: int64(math.Round(low)),
		hi: int64(math.Round(high))}, nil
}

// around parses centre±spread, with the spread in the unit or in percent of the centre. A bare ±10% is around a factor
// of one.
func around(unit Unit, centreText, spreadText string) (Dist, error) {
	centre := 1e6
	if unit != Millionths || strings.TrimSpace(centreText) != "" {
		var err error
		if centre, err = unit.parse(centreText); err != nil {
			return Dist{}, fmt.Errorf("before ±: %w", err)
		}
	}
	var spread float64
	if percent, ok := strings.CutSuffix(strings.TrimSpace(spreadText), "%"); ok {
		share, err := strconv.ParseFloat(strings.TrimSpace(percent), 64)
		if err != nil || !(share >= 0 && share <= 100) {
			return Dist{}, fmt.Errorf("after ±: %q is not a percentage between 0%% and 100%%", percent+"%")
		}
		spread = mul(centre, share) / 100
	} else {
		var err error
		if spread, err = unit.parse(spreadText); err != nil {
			return Dist{}, fmt.Errorf("after ±: %w or a percentage", err)
		}
	}
	if spread > centre {
		return Dist{}, fmt.Errorf("%s±%s goes below zero", unit.format(centre), unit.format(spread))
	}
	low, high := math.Round(centre-spread), math.Round(centre+spread)
	return Dist{unit: unit, family: FamilyUniform, a: low, b: high, lo: int64(low), hi: int64(high)}, nil
}

// positional lists the parameters in the order of a call.
var positional = map[string][]string{
	"constant": {"mean"}, "uniform": {"min", "max"}, "normal": {"mean", "stddev"}, "lognormal": {"mean", "stddev"},
	"exponential": {"mean"}, "pareto": {"min", "shape"}, "empirical": nil,
}

func parseCall(unit Unit, name, arguments string) (Dist, error) {
	order, known := positional[name]
	if !known {
		return Dist{}, fmt.Errorf("unknown kind %q; expected one of %s", name, strings.Join(familyNames[:], ", "))
	}
	fields := map[string]string{}
	var values []string
	for i, argument := range strings.Split(arguments, ",") {
		argument = strings.TrimSpace(argument)
		if key, value, named := strings.Cut(argument, "="); named {
			key = strings.TrimSpace(key)
			if _, twice := fields[key]; twice {
				return Dist{}, fmt.Errorf("%s is given twice", key)
			}
			fields[key] = value
			continue
		}
		switch {
		case name == "empirical":
			values = append(values, argument)
		case i < len(order):
			fields[order[i]] = argument
		default:
			return Dist{}, fmt.Errorf("too many values; expected %s(%s)", name, strings.Join(order, ", "))
		}
	}
	return build(unit, name, fields, values)
}

// build returns a distribution with named parameters.
func build(unit Unit, name string, fields map[string]string, values []string) (Dist, error) {
	order := positional[name]
	allowed := append([]string{"min", "max"}, order...)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(allowed, key) || (name == "constant" && key != "mean") || (name == "empirical") {
			return Dist{}, fmt.Errorf("%s has no parameter %q; expected %s", name, key, parameterList(name, order))
		}
	}
	for _, key := range order {
		if _, given := fields[key]; !given {
			return Dist{}, fmt.Errorf("%s needs %s; expected %s", name, key, parameterList(name, order))
		}
	}
	switch name {
	case "constant":
		v, err := unit.parse(fields["mean"])
		if err != nil {
			return Dist{}, fmt.Errorf("mean: %w", err)
		}
		return constant(unit, v), nil
	case "uniform":
		return uniform(unit, fields["min"], fields["max"])
	case "empirical":
		return empirical(unit, values)
	}
	return curved(unit, name, fields)
}

func parameterList(name string, order []string) string {
	switch name {
	case "empirical":
		return "values"
	case "constant":
		return "mean"
	case "uniform":
		return "min, max"
	case "pareto":
		return "min, shape and optionally max"
	}
	return strings.Join(order, ", ") + " and optionally min, max"
}

// curved returns a normal, lognormal, exponential or pareto distribution within its limits.
func curved(unit Unit, name string, fields map[string]string) (Dist, error) {
	value := map[string]float64{}
	for _, key := range []string{"mean", "stddev", "min", "max"} { // fixed order: errors must not depend on a map's
		text, given := fields[key]
		if !given {
			continue
		}
		v, err := unit.parse(text)
		if err != nil {
			return Dist{}, fmt.Errorf("%s: %w", key, err)
		}
		value[key] = v
	}
	mean, stddev := value["mean"], value["stddev"]
	if name != "pareto" && mean <= 0 {
		return Dist{}, fmt.Errorf("mean must be above zero")
	}
	d := Dist{unit: unit, a: mean}
	switch name {
	case "normal":
		d.family, d.b = FamilyNormal, stddev
	case "lognormal":
		d.family = FamilyLognormal
		variance := exactLog(1 + mul(stddev/mean, stddev/mean))
		d.b, d.mu, d.sigma = stddev, exactLog(mean)-variance/2, math.Sqrt(variance)
	case "exponential":
		d.family = FamilyExponential
	case "pareto":
		d.family = FamilyPareto
		shape, err := strconv.ParseFloat(strings.TrimSpace(fields["shape"]), 64)
		if err != nil || !(shape >= 0.1 && shape <= 1000) {
			return Dist{}, fmt.Errorf(
				"shape: %q is not a number between 0.1 and 1000 (2.5 is a heavy tail with a finite variance)",
				fields["shape"])
		}
		if value["min"] <= 0 {
			return Dist{}, errors.New("min must be above zero")
		}
		d.a, d.b = value["min"], shape
	}
	lo, hi := int64(math.Round(value["min"])), units[unit].limit
	_, d.cutLow = fields["min"]
	if _, d.cutTop = fields["max"]; d.cutTop {
		hi = int64(math.Round(value["max"]))
	}
	if (name == "normal" || name == "lognormal") && stddev == 0 {
		if n := int64(math.Round(mean)); n < lo || n > hi {
			return Dist{}, fmt.Errorf("mean %s with stddev 0 lies outside min and max", unit.format(mean))
		}
		return constant(unit, mean), nil
	}
	return d, d.limit(lo, hi)
}

// empirical parses values with optional weights: "10ms*3" is three times as likely as "80ms".
func empirical(unit Unit, list []string) (Dist, error) {
	if len(list) == 0 || len(list) > maxEmpirical {
		return Dist{}, fmt.Errorf("empirical needs 1 to %d values, got %d", maxEmpirical, len(list))
	}
	d := Dist{unit: unit, family: FamilyEmpirical}
	for i, item := range list {
		text, weightText, hasWeight := strings.Cut(item, "*")
		v, err := unit.parse(text)
		if err != nil {
			return Dist{}, fmt.Errorf("value %d: %w", i+1, err)
		}
		weight := int64(1)
		if hasWeight {
			weight, err = strconv.ParseInt(strings.TrimSpace(weightText), 10, 64)
			if err != nil || weight < 1 || weight > 1e9 {
				return Dist{}, fmt.Errorf("value %d: weight %q is not a whole number between 1 and 1000000000", i+1,
					weightText)
			}
		}
		d.values = append(d.values, weighted{value: int64(math.Round(v)), weight: weight})
	}
	sort.SliceStable(d.values, func(i, j int) bool { return d.values[i].value < d.values[j].value })
	below := int64(0)
	for i := range d.values {
		d.values[i].below = below
		below += d.values[i].weight
	}
	d.lo, d.hi = d.values[0].value, d.values[len(d.values)-1].value
	return d, nil
}
