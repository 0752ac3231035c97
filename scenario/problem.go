package scenario

import (
	"embed"
	"encoding"
	"reflect"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Problem is one mistake in a scenario, and Problems all of them.
type (
	Problem  = strictyaml.Problem
	Problems = strictyaml.Problems
)

// problem is a mistake at a field's path, placed at the field or, where it was
// left out, at the nearest thing around it that was written.
func (s *Scenario) problem(path, found, expected string) Problem {
	return s.place(path).Problem(found, expected, "")
}

// written says whether the file, or its manifests, have something at a path.
func (s *Scenario) written(path string) bool {
	_, said := s.said[path]
	return said || s.root.At(path).Given()
}

// place is where something at a path is said: in the file, or in its manifests.
func (s *Scenario) place(path string) strictyaml.Value {
	if v, said := s.said[path]; said && v.Line() > 0 {
		return v
	}
	return s.root.At(path)
}

// defaulter is a section that has default values of its own.
type defaulter interface{ defaults() }

// SetDefaults fills a section and those in it.
func SetDefaults(v reflect.Value) {
	if s, ok := v.Addr().Interface().(defaulter); ok {
		s.defaults()
	}
	for _, f := range strictyaml.Fields(v.Type()) {
		if IsSection(f.Type) {
			SetDefaults(v.FieldByIndex(f.Index))
		}
	}
}

// IsSection reports whether a type is a mapping with fields of its own.
func IsSection(t reflect.Type) bool {
	_, text := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	return t.Kind() == reflect.Struct && !text && len(strictyaml.Fields(t)) > 0
}

// Source is the source of the types of a scenario file: the comment on a field is its description in an editor.
//
//go:embed modelserver.go scenario.go pool.go groups.go autoscaling.go faults.go kvcache.go disaggregation.go incidents.go workload.go arrivals.go classes.go trace.go conversations.go hops.go expect.go ports.go predictor.go dynamo.go
var Source embed.FS
