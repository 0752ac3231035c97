package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a scenario.
type Problem struct {
	// File, Line and Column say where; Line is 0 where the mistake has no place
	// in a file (a flag).
	File         string
	Line, Column int
	// Path is the field, for instance pools[0].modelServer.prefill.
	Path string
	// Found is what stands there, and Expected what should.
	Found, Expected string
	// Hint is what to do, where there is more to say.
	Hint string
}

// Error is the problem in one line: file:line:column: path: found; expected; hint.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
		if p.Line > 0 {
			fmt.Fprintf(&b, "%d:%d:", p.Line, p.Column)
		}
		b.WriteByte(' ')
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Found)
	if p.Expected != "" {
		b.WriteString("; expected " + p.Expected)
	}
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// Problems is every mistake of a scenario, in the order of the file.
type Problems []Problem

// Error has one problem per line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// sorted is the problems as an error in the order of the file, or nil.
func (p Problems) sorted() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return p
}

type position struct{ line, column int }

// problem is a mistake at a field's path, placed at the field or, where it was
// left out, at the nearest thing around it that was written.
func (s *Scenario) problem(path, found, expected string) Problem {
	at := path
	for {
		if pos, ok := s.where[at]; ok {
			return Problem{File: s.File, Line: pos.line, Column: pos.column, Path: path, Found: found, Expected: expected}
		}
		cut := strings.LastIndexAny(at, ".[")
		if cut < 0 {
			return Problem{File: s.File, Path: path, Found: found, Expected: expected}
		}
		at = at[:cut]
	}
}
