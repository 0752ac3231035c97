package dist

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// String returns a text that ParseUnit parses to the same distribution.
func (d Dist) String() string {
	f := d.unit.format
	var s string
	switch d.family {
	case FamilyConstant:
		return f(d.a)
	case FamilyUniform:
		return f(d.a) + ".." + f(d.b)
	case FamilyEmpirical:
		items := make([]string, len(d.values))
		for i, v := range d.values {
			items[i] = f(float64(v.value))
			if v.weight != 1 {
				items[i] += "*" + strconv.FormatInt(v.weight, 10)
			}
		}
		return "empirical(" + strings.Join(items, ", ") + ")"
	case FamilyNormal, FamilyLognormal:
		s = d.family.String() + "(" + f(d.a) + ", " + f(d.b)
	case FamilyExponential:
		s = "exponential(" + f(d.a)
	case FamilyPareto:
		s = "pareto(" + f(d.a) + ", " + strconv.FormatFloat(d.b, 'f', -1, 64)
	}
	if d.cutLow && d.family != FamilyPareto {
		s += ", min=" + f(float64(d.lo))
	}
	if d.cutTop {
		s += ", max=" + f(float64(d.hi))
	}
	return s + ")"
}

// MarshalText returns the textual form.
func (d Dist) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses the textual form in the unit that d already has. Its error says only what Expected does not.
func (d *Dist) UnmarshalText(text []byte) error {
	parsed, err := parseText(d.unit, string(text))
	if err == nil {
		*d = parsed
		return nil
	}
	var form formError
	if !errors.As(err, &form) {
		return err
	}
	reason, _, _ := strings.Cut(form.reason, "; expected")
	switch {
	case strings.HasSuffix(reason, "has no unit"):
		return fmt.Errorf("the unit is missing: %sms or %ss?", text, text)
	case strings.HasSuffix(reason, units[d.unit].one):
		return errors.New("not " + d.Expected())
	}
	return errors.New(reason)
}

// SetUnit makes d a distribution of the unit "count" or "factor", and for any other name of spans. It discards the
// previous value.
func (d *Dist) SetUnit(name string) {
	*d = Dist{unit: map[string]Unit{"count": Count, "factor": Millionths}[name]}
}

// Expected describes in short the texts that UnmarshalText accepts.
func (d Dist) Expected() string { return units[d.unit].expected }

// Range returns the lowest and the highest value that may be drawn.
func (d Dist) Range() (low, high float64) {
	return float64(d.Quantile(0)), float64(d.Quantile(1))
}

// InsteadOf returns the text that replaces an older file's mapping (kind, mean, stddev, min, max, shape, values); ""
// for an invalid mapping.
func (d *Dist) InsteadOf(mapping map[string]any) string {
	has := func(key string) bool { _, ok := mapping[key]; return ok }
	kind, _ := mapping["kind"].(string)
	switch {
	case kind != "":
	case has("values"):
		kind = "empirical"
	case has("shape"):
		kind = "pareto"
	case has("stddev"):
		kind = "normal"
	case has("mean"):
		kind = "constant"
	default:
		kind = "uniform"
	}
	var arguments []string
	for key, value := range mapping {
		switch list, isList := value.([]any); {
		case key == "kind":
		case isList && key == "values":
			for _, v := range list {
				arguments = append(arguments, fmt.Sprint(v))
			}
		default:
			arguments = append(arguments, fmt.Sprintf("%s=%v", key, value))
		}
	}
	slices.Sort(arguments)
	parsed, err := parseText(d.unit, kind+"("+strings.Join(arguments, ", ")+")")
	if err != nil {
		return ""
	}
	return strconv.Quote(parsed.String())
}
