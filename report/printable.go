package report

import (
	"reflect"
	"slices"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// shown returns an event whose names are safe to print, and no longer than a line. The function value clips and quotes
// the details.
func shown(e record.Event) record.Event {
	e.Hop, e.Step, e.Endpoint = record.Hop(name(string(e.Hop))), record.Step(name(string(e.Step))), name(e.Endpoint)
	for i := range e.Details {
		if key := e.Details[i].Key; name(key) != key {
			e.Details = slices.Clone(e.Details)
			for j := range e.Details {
				e.Details[j].Key = name(e.Details[j].Key)
			}
			break
		}
	}
	return e
}

// name returns printable text of a bounded length.
func name(text string) string {
	if len(text) > longestName {
		text = text[:longestName] + "…"
	}
	return terminal.Printable(text)
}

// printable returns the summary with printable text in every field, and leaves the summary itself as it is.
func (s Summary) printable() Summary {
	return printable(reflect.ValueOf(s)).Interface().(Summary)
}

// printable returns a copy of a value with printable text. Keys of maps are text, too.
func printable(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(terminal.Printable(v.String()))
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(printable(v.Field(i)))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(printable(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(printable(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for at := v.MapRange(); at.Next(); {
				out.SetMapIndex(printable(at.Key()), printable(at.Value()))
			}
		}
	default:
		out.Set(v)
	}
	return out
}
