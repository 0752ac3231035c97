// Package strictyaml reads the YAML that people write: scenarios, the endpoint
// picker's configuration, Kubernetes objects, lists of endpoints. It tells every
// mistake of a file at once, each with its place, what was found, what was
// expected and, where there is more to say, what to do.
//
// Parse makes a Document of text, within limits. Its values are read in one of
// two ways: Value.Decode fills Go structs, and a Value's own methods walk
// through files whose shape is not a struct's.
package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a file.
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

// Error returns the problem in one line: file:line:column: path: found; expected; hint.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		if p.File == "" {
			b.WriteString("line ")
		}
		fmt.Fprintf(&b, "%d:%d:", p.Line, p.Column)
	}
	if b.Len() > 0 {
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

// Problems is every mistake of a file.
type Problems []Problem

// Error has one problem per line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// maxProblems is how many mistakes are told at once.
const maxProblems = 50

// Err returns the problems as an error, in the order of their places, or nil when
// there are none. Of very many the first are told, and how many more there are.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	p = slices.Clone(p)
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column)
	})
	if more := len(p) - maxProblems; more > 0 {
		p = append(p[:maxProblems], Problem{File: p[0].File, Found: fmt.Sprintf("and %d more mistakes", more)})
	}
	return p
}
