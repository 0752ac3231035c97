package scenario

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/latency"
)

// enum is a text of which only some values are meant.
type enum interface{ values() []string }

// leaf reads a value that has no fields of its own.
func (d *decoder) leaf(n *yaml.Node, path string, v reflect.Value, tag reflect.StructTag) {
	if isNull(n) {
		d.add(n, path, "found nothing", expected(v.Type(), tag))
		return
	}
	if dist, ok := v.Addr().Interface().(*latency.Dist); ok {
		d.dist(n, path, dist, tag)
		return
	}
	if n.Kind != yaml.ScalarNode {
		d.add(n, path, "found "+describe(n), expected(v.Type(), tag))
		return
	}
	if hint, ok := setLeaf(v, n, tag); !ok {
		d.hint(n, path, "found "+describe(n), expected(v.Type(), tag), hint)
	}
}

// setLeaf reads a scalar into v. When it cannot, the hint says what would help,
// if anything.
func setLeaf(v reflect.Value, n *yaml.Node, tag reflect.StructTag) (hint string, ok bool) {
	switch to := v.Addr().Interface().(type) {
	case enum:
		known := to.values()
		for _, k := range known {
			if k == n.Value {
				v.SetString(k)
				return "", true
			}
		}
		if guess := nearest(n.Value, known); guess != "" {
			return fmt.Sprintf("did you mean %q?", guess), false
		}
		return "", false
	case *time.Duration:
		parsed, err := time.ParseDuration(n.Value)
		if err != nil {
			if n.Tag == "!!int" || n.Tag == "!!float" {
				return fmt.Sprintf("the unit is missing: %sms or %ss?", n.Value, n.Value), false
			}
			return "", false
		}
		*to = parsed
		return "", within(float64(parsed), tag, durationLimit)
	case *Bytes:
		parsed, err := ParseBytes(n.Value)
		*to = parsed
		return "", err == nil && within(float64(parsed), tag, byteLimit)
	case *ByteRange:
		parsed, err := ParseByteRange(n.Value)
		*to = parsed
		return "", err == nil && within(float64(parsed.Low), tag, byteLimit) && within(float64(parsed.High), tag, byteLimit)
	case *Amount:
		parsed, err := ParseAmount(n.Value)
		*to = parsed
		return "", err == nil
	case *Share:
		parsed, err := ParseShare(n.Value)
		*to = parsed
		return "", err == nil
	}
	switch v.Kind() {
	case reflect.String:
		if n.Tag != "!!str" {
			return "put it in quotes if it is meant as text", false
		}
		v.SetString(n.Value)
		return "", true
	case reflect.Bool:
		v.SetBool(n.Value == "true")
		return "", n.Tag == "!!bool" && (strings.EqualFold(n.Value, "true") || strings.EqualFold(n.Value, "false"))
	case reflect.Int:
		i, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
		v.SetInt(i)
		return "", err == nil && n.Tag == "!!int" && within(float64(i), tag, numberLimit)
	case reflect.Uint64:
		u, err := strconv.ParseUint(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
		v.SetUint(u)
		return "", err == nil && n.Tag == "!!int"
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		v.SetFloat(f)
		return "", err == nil && (n.Tag == "!!int" || n.Tag == "!!float") && !math.IsNaN(f) && within(f, tag, numberLimit)
	}
	panic("scenario: no reader for " + v.Type().String()) // a test reads every field
}

func (d *decoder) dist(n *yaml.Node, path string, to *latency.Dist, tag reflect.StructTag) {
	var raw any
	if n.Kind == yaml.ScalarNode {
		raw = n.Value
	} else if err := n.Decode(&raw); err != nil {
		d.add(n, path, "found "+describe(n), expected(reflect.TypeFor[latency.Dist](), tag))
		return
	}
	unit, limit := latency.Nanoseconds, durationLimit
	switch tag.Get("unit") {
	case "count":
		unit, limit = latency.Count, numberLimit
	case "factor":
		unit, limit = latency.Millionths, numberLimit
	}
	parsed, err := latency.DistFrom(unit, raw)
	if err != nil {
		d.add(n, path, strings.TrimPrefix(err.Error(), "distribution: "), "")
		return
	}
	low, high := float64(parsed.Quantile(0)), float64(parsed.Quantile(1))
	if !within(low, tag, limit) || !within(high, tag, limit) {
		d.add(n, path, "found "+describe(n), expected(reflect.TypeFor[latency.Dist](), tag))
		return
	}
	*to = parsed
}

// durationLimit, byteLimit and numberLimit read the limits in a field's tag.
func durationLimit(text string) float64 { v, _ := time.ParseDuration(text); return float64(v) }
func byteLimit(text string) float64     { v, _ := ParseBytes(text); return float64(v) }
func numberLimit(text string) float64   { v, _ := strconv.ParseFloat(text, 64); return v }

func within(v float64, tag reflect.StructTag, limit func(string) float64) bool {
	if text, ok := tag.Lookup("min"); ok && v < limit(text) {
		return false
	}
	text, ok := tag.Lookup("max")
	return !ok || v <= limit(text)
}

// expected says in words what a field takes.
func expected(t reflect.Type, tag reflect.StructTag) string {
	limits := ""
	low, hasLow := tag.Lookup("min")
	high, hasHigh := tag.Lookup("max")
	switch {
	case low == "1ns":
		limits = ", above zero"
	case hasLow && hasHigh:
		limits = ", from " + low + " to " + high
	case hasLow:
		limits = ", " + low + " or more"
	case hasHigh:
		limits = ", at most " + high
	}
	if e, ok := reflect.New(t).Interface().(enum); ok {
		return strings.Join(e.values(), " or ")
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return durationHelp + limits
	case reflect.TypeFor[Bytes]():
		return bytesHelp + limits
	case reflect.TypeFor[ByteRange]():
		return byteRangeHelp + limits
	case reflect.TypeFor[Amount]():
		return amountHelp
	case reflect.TypeFor[Share]():
		return shareHelp
	case reflect.TypeFor[latency.Dist]():
		switch tag.Get("unit") {
		case "count":
			return countHelp + limits
		case "factor":
			return factorHelp
		}
		return spanHelp + limits
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Uint64:
		return "a whole number" + limits
	case reflect.Float64:
		return "a number" + limits
	}
	return "text"
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// describe says what stands in a file, for "found …".
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	text := n.Value
	if len(text) > 60 {
		text = strings.ToValidUTF8(text[:57], "") + "..."
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "the number " + text
	case "!!bool":
		return "the truth value " + text
	case "!!merge":
		return "a merge key (<<)"
	}
	return strconv.Quote(text)
}

// field is a field of a section and its name in the file.
type field struct {
	name  string
	index int
}

func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" && name != "-" {
			out = append(out, field{name, i})
		}
	}
	return out
}

func names(fields []field) string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = f.name
	}
	return strings.Join(list, ", ")
}

// isSection reports whether a type is a mapping with fields of its own.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && len(fieldsOf(t)) > 0
}

func setDefaults(v reflect.Value) {
	if s, ok := v.Addr().Interface().(defaulter); ok {
		s.defaults()
	}
	for _, f := range fieldsOf(v.Type()) {
		if isSection(v.Field(f.index).Type()) {
			setDefaults(v.Field(f.index))
		}
	}
}
