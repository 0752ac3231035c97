package scenario

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Problem is one mistake in a scenario, and Problems all of them.
type (
	Problem  = strictyaml.Problem
	Problems = strictyaml.Problems
)

// checker checks a scenario whose fields are each valid, fills in what depends on several fields, and collects the
// mistakes.
type checker struct {
	*Scenario
	problems Problems
}

// bad reports a mistake at a field's path.
func (s *checker) bad(path, found, expected string) { s.add(s.problem(path, found, expected)) }

// add reports mistakes, each once: groups share fields of their pool, and hosts share routes.
func (s *checker) add(list ...Problem) { s.problems = withNew(s.problems, list) }

// assume notes what the scenario's files left open, each note once.
func (s *Scenario) assume(notes ...string) { s.assumed = withNew(s.assumed, notes) }

func withNew[L ~[]E, E comparable](list L, more []E) L {
	for _, x := range more {
		if !slices.Contains(list, x) {
			list = append(list, x)
		}
	}
	return list
}

// need reports a field as missing unless it is given.
func (s *checker) need(path string, given bool, expected string) {
	if !given {
		s.bad(path, "missing", expected)
	}
}

// unknown reports a name that is not one of the known ones, with a guess of the one that was meant.
func (s *checker) unknown(path, name, expected string, known []string) {
	p := s.problem(path, found(name), expected)
	p.Hint = strictyaml.DidYouMean(name, known)
	s.add(p)
}

// numbers reports each number of the list at path that is not in [low, high].
func (s *checker) numbers(path string, list []int, low, high int, what string) {
	for i, n := range list {
		if n < low || n > high {
			s.bad(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("found %d", n),
				fmt.Sprintf("%d to %d, %s", low, high, what))
		}
	}
}

// refuse reports each of the fields of the section at path that the file has.
func (s *checker) refuse(path string, fields []string, found, expected string) {
	for _, field := range fields {
		if s.written(path + "." + field) {
			s.bad(path+"."+field, found, expected)
		}
	}
}

// problem returns a mistake at a field's path, or, where the file leaves it out, at the nearest section around it.
func (s *Scenario) problem(path, found, expected string) Problem {
	return s.place(path).Problem(found, expected, "")
}

// written reports whether the file, or its manifests, have something at a path.
func (s *Scenario) written(path string) bool {
	_, said := s.said[path]
	return said || s.root.At(path).Given()
}

// place returns the place of a path: in the file, or in its manifests.
func (s *Scenario) place(path string) strictyaml.Value {
	if v, said := s.said[path]; said && v.Line() > 0 {
		return v
	}
	return s.root.At(path)
}

// Locate gives an error the place of a path, in the scenario's file.
func (s *Scenario) Locate(path string, err error) error { return s.place(path).ProblemsOf(err).Err() }

// defaulter is a section with default values that other packages define.
type defaulter interface{ defaults() }

// SetDefaults fills a section and those in it, by the fields' tags default.
func SetDefaults(v reflect.Value) {
	if s, ok := v.Addr().Interface().(defaulter); ok {
		s.defaults()
	}
	for _, f := range strictyaml.Fields(v.Type()) {
		if text, ok := f.Tag.Lookup("default"); ok {
			strictyaml.SetText(v.FieldByIndex(f.Index), text, f.Tag)
		} else if IsSection(f.Type) {
			SetDefaults(v.FieldByIndex(f.Index))
		}
	}
}

// IsSection reports whether a type is a mapping with fields of its own.
func IsSection(t reflect.Type) bool {
	_, text := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	return t.Kind() == reflect.Struct && !text && len(strictyaml.Fields(t)) > 0
}
