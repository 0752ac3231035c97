package latency

import (
	"fmt"
	"sort"
	"strings"
)

// DistFrom reads a distribution from a decoded YAML or JSON value: a string as
// ParseUnit reads it, a plain number, or a mapping with kind, mean, stddev,
// min, max, shape and values. Without kind, mean and stddev are a normal
// distribution, min and max a uniform one, values an empirical one and mean
// alone a constant.
func DistFrom(unit Unit, v any) (Dist, error) {
	switch v := v.(type) {
	case string:
		return ParseUnit(unit, v)
	case map[string]any:
		d, err := fromMap(unit, v)
		if err != nil {
			return Dist{}, fmt.Errorf("distribution: %w", err)
		}
		return d, nil
	case nil, []any, bool:
		return Dist{}, fmt.Errorf("distribution: %v is not one; expected %s", v, unit.help())
	}
	return ParseUnit(unit, fmt.Sprint(v))
}

var listExample = [...]string{Nanoseconds: "[10ms, 80ms]", Count: "[16, 512]", Millionths: "[1, 1.2]"}

var distKeys = []string{"kind", "mean", "stddev", "min", "max", "shape", "values"}

func fromMap(unit Unit, m map[string]any) (Dist, error) {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	fields := map[string]string{}
	var values []string
	for _, key := range keys {
		switch {
		case !contains(distKeys, key):
			return Dist{}, fmt.Errorf("unknown field %q; expected %s", key, strings.Join(distKeys, ", "))
		case key == "values":
			list, ok := m[key].([]any)
			if !ok {
				return Dist{}, fmt.Errorf("values: expected a list such as %s", listExample[unit])
			}
			for _, item := range list {
				values = append(values, fmt.Sprint(item))
			}
		default:
			switch m[key].(type) {
			case map[string]any, []any, nil, bool:
				return Dist{}, fmt.Errorf("%s: expected a text or a number", key)
			}
			fields[key] = fmt.Sprint(m[key])
		}
	}
	kind, given := fields["kind"]
	delete(fields, "kind")
	if !given {
		kind = guessKind(fields, values)
	}
	if kind == "" {
		return Dist{}, fmt.Errorf("kind is missing; expected one of %s", strings.Join(familyNames[:], ", "))
	}
	return build(unit, kind, fields, values)
}

func guessKind(fields map[string]string, values []string) string {
	_, mean := fields["mean"]
	_, stddev := fields["stddev"]
	_, low := fields["min"]
	_, high := fields["max"]
	_, shape := fields["shape"]
	switch {
	case len(values) > 0:
		return "empirical"
	case mean && stddev:
		return "normal"
	case shape:
		return "pareto"
	case low && high && !mean:
		return "uniform"
	case mean && !low && !high:
		return "constant"
	}
	return ""
}
