package report

import (
	"fmt"
	"reflect"
	"strings"
)

// Figure returns any number of the summary by its path in JSON. An element is the name of a field, the key of a map,
// or, for a list, a text of the entry: classes, chat, attainment. A missing key of a map counts as 0. found is false
// where the run has no value. err lists the possible names where the path cannot exist.
func (s *Summary) Figure(path []string) (value float64, found bool, err error) {
	t, at := reflect.TypeFor[Summary](), reflect.ValueOf(s).Elem()
	for i, name := range path {
		if t.Kind() == reflect.Pointer {
			if t = t.Elem(); at.IsValid() {
				at = at.Elem()
			}
		}
		switch t.Kind() {
		case reflect.Struct:
			f, names := fieldNamed(t, name)
			if f < 0 {
				return 0, false, fmt.Errorf("the summary has no %s; %s", inWords(path[:i+1]),
					"there are "+strings.Join(names, ", "))
			}
			if t = t.Field(f).Type; at.IsValid() {
				at = at.Field(f)
			}
		case reflect.Map:
			t = t.Elem()
			if at.IsValid() {
				if at = at.MapIndex(reflect.ValueOf(name).Convert(at.Type().Key())); !at.IsValid() {
					at = reflect.Zero(t)
				}
			}
		case reflect.Slice:
			t = t.Elem()
			at = entryNamed(at, name)
		default:
			return 0, false, fmt.Errorf("%s of the summary is one number or text; expected nothing behind it",
				inWords(path[:i]))
		}
	}
	if t.Kind() == reflect.Pointer {
		if t = t.Elem(); at.IsValid() {
			at = at.Elem()
		}
	}
	number := reflect.TypeFor[float64]()
	if !t.ConvertibleTo(number) {
		return 0, false, fmt.Errorf("%s of the summary is not a number; expected the path of a number", inWords(path))
	}
	if at.IsValid() {
		value = at.Convert(number).Float()
	}
	return value, at.IsValid(), nil
}

// inWords joins a path as people write it.
func inWords(path []string) string { return strings.Join(path, ".") }

// fieldNamed returns the index of the field with this JSON name, or -1 and all names.
func fieldNamed(t reflect.Type, name string) (int, []string) {
	var names []string
	for i := range t.NumField() {
		is, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if is == name && is != "" && is != "-" {
			return i, nil
		}
		if is != "" && is != "-" {
			names = append(names, is)
		}
	}
	return -1, names
}

// entryNamed returns the first entry of a list that has this text in a field. For the empty name it returns the first
// entry whose first text is empty.
func entryNamed(list reflect.Value, name string) reflect.Value {
	for i := 0; list.IsValid() && i < list.Len(); i++ {
		e := list.Index(i)
		for j := 0; e.Kind() == reflect.Struct && j < e.NumField(); j++ {
			if f := e.Field(j); f.Kind() == reflect.String {
				if f.String() == name {
					return e
				} else if name == "" {
					break
				}
			}
		}
	}
	return reflect.Value{}
}

// JudgeBy returns a Judge of Options by a function that compares figures with what is expected of them.
func JudgeBy(check func(figure func(path ...string) (float64, bool)) []Expectation) func(Summary) []Expectation {
	return func(sum Summary) []Expectation {
		return check(func(path ...string) (float64, bool) {
			v, found, _ := sum.Figure(path)
			return v, found
		})
	}
}
