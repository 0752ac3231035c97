// Package strictyaml reads the YAML that people write: scenarios, the endpoint picker's configuration, Kubernetes
// objects, lists of endpoints. It reports every mistake of a file at once. Each has its position, the value found, the
// value expected and, where that helps, a hint.
//
// Parse makes a Document of text, within limits. There are two ways to read its values. Value.Decode fills Go structs.
// A Value's own methods walk through files whose shape differs from a struct.
package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Problem is one mistake in a file.
type Problem struct {
	// File, Line and Column are the position. Line is 0 where the mistake is not in a file, as with a flag.
	File         string
	Line, Column int
	// Path is the field's path, for instance pools[0].modelServer.prefill.
	Path string
	// Found describes the value in the file, and Expected the values allowed.
	Found, Expected string
	// Hint says what to do; it may be empty.
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

// Problems holds every mistake of a file.
type Problems []Problem

// Error returns one problem per line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// maxProblems limits the mistakes in one error.
const maxProblems = 50

// Err returns the problems as an error, sorted by position, or nil where there are none. Beyond maxProblems it has only
// the number of further ones.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	p = slices.Clone(p)
	machine.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column)
	})
	if more := len(p) - maxProblems; more > 0 {
		p = append(p[:maxProblems], Problem{File: p[0].File, Found: fmt.Sprintf("and %d more mistakes", more)})
	}
	return p
}
