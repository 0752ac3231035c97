package strictyaml

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Types implement these interfaces to control how they are read. encoding.TextUnmarshaler is another one: a type with
// it reads itself from a scalar's text.
type (
	// Reader reads itself from any value.
	Reader interface{ ReadYAML(v Value) Problems }
	// Enum is a text type with a fixed set of values.
	Enum interface{ Values() []string }
	// Expecter describes the values of a text type, such as "a duration such as 30s".
	Expecter interface{ Expected() string }
	// Ranger returns the lowest and the highest value that a text may stand for, for the tags min and max.
	Ranger interface{ Range() (low, high float64) }
	// Uniter is a text type that is read in a unit: the unit in the tag unit.
	Uniter interface{ SetUnit(name string) }
	// Instead returns the replacement for a mapping, for a type that was once written as one. It returns "" where there
	// is none.
	Instead interface {
		InsteadOf(mapping map[string]any) string
	}
)

// Field is a field of a struct with its name in a file.
type Field struct {
	Name string
	reflect.StructField
}

// Fields returns the fields of a struct that Decode fills, including those of embedded structs. Their tags are:
//
//	json   the name; "." is the position of the struct itself, for a Value
//	min    the lowest value, or the fewest entries of a list
//	max    the highest value, or the most entries of a list
//	above  like min, but exclusive
//	oneof  the allowed words of a text, separated by commas
//	unit   the unit for a Uniter
//
// A field of type Value takes any value unread.
func Fields(t reflect.Type) []Field {
	var out []Field
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && name != "." {
			out = append(out, Field{name, f})
		}
	}
	return out
}

func names(fields []Field) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.Name
	}
	return out
}

// Decode reads the value into the struct, list, mapping or scalar that into points to, and returns every mistake. A
// value that is not given leaves its target unchanged.
func (v Value) Decode(into any) Problems {
	to := reflect.ValueOf(into).Elem()
	d := decoder{root: to.Type()}
	if v.doc != nil {
		d.o = v.doc.o
	}
	d.prepare(to)
	if v.Given() {
		d.value(v, to, "")
	}
	return d.problems
}

// decoder fills Go values. It continues after a mistake, so that a person sees all of them.
type decoder struct {
	o        Options
	root     reflect.Type // the type of the whole file
	problems Problems
}

func (d *decoder) fail(v Value, found, expected, hint string) {
	if len(d.problems) < maxKept {
		d.problems = append(d.problems, v.Problem(found, expected, hint))
	}
}

func (d *decoder) prepare(to reflect.Value) {
	if d.o.Prepare != nil && to.Kind() == reflect.Struct && to.CanAddr() {
		d.o.Prepare(to.Addr().Interface())
	}
}

// value reads one value. The tag holds the field's limits.
func (d *decoder) value(v Value, to reflect.Value, tag reflect.StructTag) {
	if at, ok := to.Addr().Interface().(*Value); ok {
		*at = v
		return
	}
	if v.kubernetes && !v.Given() {
		return
	}
	if r, ok := to.Addr().Interface().(Reader); ok {
		d.problems = append(d.problems, r.ReadYAML(v)...)
		return
	}
	if to.Kind() == reflect.Pointer {
		p := reflect.New(to.Type().Elem())
		d.prepare(p.Elem())
		d.value(v, p.Elem(), tag)
		to.Set(p)
		return
	}
	_, text := to.Addr().Interface().(encoding.TextUnmarshaler)
	switch kind := to.Kind(); {
	case text:
		d.leaf(v, to, tag)
	case kind == reflect.Struct:
		d.fields(v, to)
	case kind == reflect.Slice:
		d.list(v, to, tag)
	case kind == reflect.Map:
		d.mapping(v, to)
	case kind == reflect.Interface:
		if x := v.Any(); x != nil {
			to.Set(reflect.ValueOf(x))
		}
	default:
		d.leaf(v, to, tag)
	}
}

// pairs returns a mapping's entries and notes duplicate names.
func (d *decoder) pairs(v Value, expected string) []Pair {
	if !v.Given() {
		return nil
	}
	if v.node.Kind != yaml.MappingNode {
		d.fail(v, v.Found(), expected, "")
		return nil
	}
	lines := map[string]int{}
	return slices.DeleteFunc(v.entries(), func(p Pair) bool {
		if p.Key.node.Kind != yaml.ScalarNode || p.Key.node.Tag == mergeTag {
			d.fail(p.Key.Named(v.path), p.Key.Found()+" as a field's name",
				strings.TrimPrefix(expected, aMapping+" with "), "")
			return true
		}
		if first := lines[p.Name]; first > 0 {
			d.fail(p.Key, twice(first), "each field once", "")
			return true
		}
		lines[p.Name] = p.Key.line
		return false
	})
}

// fields reads a mapping into a struct.
func (d *decoder) fields(v Value, to reflect.Value) {
	fields := Fields(to.Type())
	for _, f := range reflect.VisibleFields(to.Type()) {
		if f.Tag.Get("json") == "." {
			to.FieldByIndex(f.Index).Set(reflect.ValueOf(v))
		}
	}
	known := "one of " + strings.Join(names(fields), ", ")
	if len(fields) == 0 {
		known = "no fields at all"
	}
	pairs := d.pairs(v, aMapping+" with "+strings.TrimPrefix(known, "one of "))
	for _, p := range pairs {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == p.Name })
		if i < 0 && v.fold {
			i = slices.IndexFunc(fields, func(f Field) bool { return strings.EqualFold(f.Name, p.Name) })
			if i >= 0 && slices.ContainsFunc(pairs, func(p Pair) bool { return p.Name == fields[i].Name }) {
				continue
			}
		}
		if i >= 0 {
			d.value(p.Value, to.FieldByIndex(fields[i].Index), fields[i].Tag)
			continue
		}
		hint := DidYouMean(p.Name, names(fields))
		if at := homes(p.Name, d.root); hint == "" && len(at) > 0 {
			hint = fmt.Sprintf("%q belongs in %s", p.Name, strings.Join(at, " or "))
		}
		if d.o.WarnUnknown {
			p.Key.Warn("unknown field", "", "it is ignored"+and(hint))
		} else {
			d.fail(p.Key, "unknown field", known, hint)
		}
	}
}

func (d *decoder) list(v Value, to reflect.Value, tag reflect.StructTag) {
	if !v.Given() {
		return
	}
	if v.node.Kind != yaml.SequenceNode {
		d.fail(v, v.Found(), aList, "")
		return
	}
	n := len(v.node.Content)
	if most, err := strconv.Atoi(tag.Get("max")); err == nil && n > most {
		d.fail(v, fmt.Sprintf("found %d entries", n), fmt.Sprintf("at most %d", most), "")
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), n, n))
	for i, e := range v.List() {
		d.prepare(to.Index(i))
		d.value(e, to.Index(i), "")
	}
}

func (d *decoder) mapping(v Value, to reflect.Value) {
	out := reflect.MakeMap(to.Type())
	for _, p := range d.pairs(v, aMapping) {
		e := reflect.New(to.Type().Elem()).Elem()
		d.prepare(e)
		d.value(p.Value, e, "")
		out.SetMapIndex(reflect.ValueOf(p.Name).Convert(to.Type().Key()), e)
	}
	if v.IsMapping() {
		to.Set(out)
	}
}
