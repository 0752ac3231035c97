package report

import (
	"fmt"
	"reflect"
	"strings"
)

// Figure is any number of the summary, by the names that it has in JSON: field by field, of
// a map the key, of a list the entry with such a text, such as classes, chat, attainment. What
// a map of counts does not have is 0. found is false where the run has nothing of it, and err
// says which names there are where there can be no such figure.
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
	switch {
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Float64:
		if at.IsValid() {
			at = at.Elem()
		}
		fallthrough
	case t.Kind() == reflect.Float64:
		if at.IsValid() {
			value = at.Float()
		}
	case reflect.Int <= t.Kind() && t.Kind() <= reflect.Int64:
		if at.IsValid() {
			value = float64(at.Int())
		}
	case reflect.Uint <= t.Kind() && t.Kind() <= reflect.Uint64:
		if at.IsValid() {
			value = float64(at.Uint())
		}
	default:
		return 0, false, fmt.Errorf("%s of the summary is no number; expected the name of one in it", inWords(path))
	}
	return value, at.IsValid(), nil
}

// inWords is a path as people write it.
func inWords(path []string) string { return strings.Join(path, ".") }

// fieldNamed is the field with this name in JSON, else -1 and all names.
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

// entryNamed is the first entry of a list one of whose texts this is; for the empty name the first
// whose first text is empty.
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
