package strictyaml

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/machine"
)

// leaf reads a value without fields of its own.
func (d *decoder) leaf(v Value, to reflect.Value, tag reflect.StructTag) {
	hint, ok := "", false
	switch x, was := to.Addr().Interface().(Instead); {
	case v.node != nil && v.node.Kind == yaml.ScalarNode && v.Given():
		hint, ok = setLeaf(v, to, tag)
	case was && v.IsMapping():
		setUnit(x, tag)
		if text := x.InsteadOf(v.Any().(map[string]any)); text != "" {
			hint = "write " + text
		}
	}
	if !ok {
		d.fail(v, v.Found(), Expected(to.Type(), tag), hint)
	}
}

// SetText sets a field to what a text means in a file. It is for texts of the program, such as defaults: a text that
// the field does not take is a fault.
func SetText(to reflect.Value, text string, tag reflect.StructTag) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	n.Tag = n.ShortTag()
	if _, ok := setLeaf(Value{node: n}, to, tag); !ok {
		panic(fmt.Sprintf("strictyaml: found %q; expected %s", text, Expected(to.Type(), tag)))
	}
}

func setUnit(x any, tag reflect.StructTag) {
	if u, ok := x.(Uniter); ok {
		u.SetUnit(tag.Get("unit"))
	}
}

// setLeaf reads a scalar. Where it cannot, it returns false and perhaps a hint.
func setLeaf(v Value, to reflect.Value, tag reflect.StructTag) (hint string, ok bool) {
	text := v.node.Value
	if words := wordsOf(to.Type(), tag); words != nil {
		if slices.Contains(words, text) {
			to.SetString(text)
			return "", true
		}
		return DidYouMean(text, words), false
	}
	x, isText := to.Addr().Interface().(encoding.TextUnmarshaler)
	switch d := to.Addr().Interface().(type) {
	case *time.Duration:
		x, isText = (*Duration)(d), true
	case *machine.Time:
		x, isText = (*Duration)(d), true
	}
	if isText {
		setUnit(x, tag)
		if err := x.UnmarshalText([]byte(text)); err != nil {
			if e, is := x.(Expecter); is && strings.Contains(err.Error(), e.Expected()) {
				return "", false // Expected already says why
			}
			return err.Error(), false
		}
		r, ranges := x.(Ranger)
		if !ranges {
			return "", true
		}
		low, high := r.Range()
		return "", within(low, high, tag, func(limit string) float64 {
			l := reflect.New(reflect.TypeOf(x).Elem()).Interface()
			setUnit(l, tag)
			_ = l.(encoding.TextUnmarshaler).UnmarshalText([]byte(limit))
			f, _ := l.(Ranger).Range()
			return f
		})
	}
	switch to.Kind() {
	case reflect.String:
		if !v.IsText() {
			return quotes, false
		}
		to.SetString(text)
		return "", true
	case reflect.Bool:
		b, ok := v.truth()
		to.SetBool(b)
		return "", ok
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, ok := v.integer()
		if ok = ok && !to.OverflowInt(n); ok {
			to.SetInt(n)
		}
		return "", ok && within(float64(n), float64(n), tag, number)
	case reflect.Uint64:
		n, ok := v.integer()
		u := uint64(n)
		if !ok || n < 0 {
			var err error
			u, err = strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 10, 64)
			ok = err == nil && v.tag() == "!!int"
		}
		to.SetUint(u)
		return "", ok && within(float64(u), float64(u), tag, number)
	case reflect.Float64:
		f, ok := v.number()
		to.SetFloat(f)
		return "", ok && within(f, f, tag, number)
	}
	panic("strictyaml: no reader for " + to.Type().String()) // a test reads every field
}

func number(limit string) float64 {
	f, err := strconv.ParseFloat(limit, 64)
	if err != nil {
		panic("strictyaml: the limit " + limit + " is no number")
	}
	return f
}

// within checks a value, given by its lowest and highest possible value, against the limits in a tag.
func within(low, high float64, tag reflect.StructTag, read func(limit string) float64) bool {
	if text, ok := tag.Lookup("min"); ok && low < read(text) {
		return false
	}
	if text, ok := tag.Lookup("above"); ok && low <= read(text) {
		return false
	}
	text, ok := tag.Lookup("max")
	return !ok || high <= read(text)
}

// wordsOf returns the allowed words of a text, or nil where it may be any.
func wordsOf(t reflect.Type, tag reflect.StructTag) []string {
	if e, ok := reflect.New(t).Interface().(Enum); ok {
		return e.Values()
	}
	if list, ok := tag.Lookup("oneof"); ok {
		return strings.Split(list, ",")
	}
	return nil
}

// Words returns the allowed words of a text, for "expected …".
func Words(words []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" }), " or ")
}

// Duration is a span of time such as 500ms. A time.Duration and a machine.Time have the same syntax.
type Duration machine.Time

// Time returns the span as a machine.Time.
func (d Duration) Time() machine.Time { return machine.Time(d) }

// UnmarshalText parses the syntax of time.ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if _, plain := strconv.ParseFloat(string(text), 64); err != nil && plain == nil {
		return fmt.Errorf("the unit is missing: %sms or %ss?", text, text)
	}
	if err != nil {
		return errors.New("not " + d.Expected())
	}
	*d = Duration(v)
	return nil
}

// Expected describes the syntax of a span.
func (Duration) Expected() string { return "a duration such as 500ms, 30s or 2m" }

// Range returns the span as both limits.
func (d Duration) Range() (low, high float64) { return float64(d), float64(d) }

// Expected describes the allowed values of a field with this type and tag.
func Expected(t reflect.Type, tag reflect.StructTag) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if words := wordsOf(t, tag); words != nil {
		return Words(words)
	}
	limits := limits(tag)
	x := reflect.New(t).Interface()
	setUnit(x, tag)
	if e, ok := x.(Expecter); ok {
		return e.Expected() + limits
	}
	if t == reflect.TypeFor[time.Duration]() || t == reflect.TypeFor[machine.Time]() {
		return Duration(0).Expected() + limits
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64:
		return "a whole number" + limits
	case reflect.Float32, reflect.Float64:
		return "a number" + limits
	}
	return "text"
}

// limits describes the limits in a tag.
func limits(tag reflect.StructTag) string {
	low, hasLow := tag.Lookup("min")
	high, hasHigh := tag.Lookup("max")
	above, hasAbove := tag.Lookup("above")
	if strings.TrimRight(above, "s") == "0" {
		above = "zero"
	}
	switch {
	case hasAbove && hasHigh:
		return ", above " + above + " and at most " + high
	case hasAbove:
		return ", above " + above
	case hasLow && hasHigh:
		return ", from " + low + " to " + high
	case hasLow:
		return ", " + low + " or more"
	case hasHigh:
		return ", at most " + high
	}
	return ""
}
