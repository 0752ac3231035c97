package picker

import (
	"fmt"
	"sort"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/picker/strict"
)

// Stability is how far a plug-in type has come.
type Stability uint8

// The stabilities of llm-d-router. Alpha types need the flag
// --allow-experimental-plugins; deprecated ones are warned about.
const (
	Beta Stability = iota
	Alpha
	Deprecated
)

// Factory makes one instance of a plug-in from its parameters.
type Factory func(b *Builder, name string, params Params) (Plugin, error)

// Registration is one plug-in type.
type Registration struct {
	New       Factory
	Stability Stability
	// NoRole says that an instance does nothing inside a profile; a profile
	// that lists it is accepted and it is left out.
	NoRole bool
}

// Registry maps type names to factories. It is an ordinary map: a program
// takes the built-in one, adds its own types and builds a picker with it.
type Registry map[string]Registration

// Types lists the registered names in order.
func (r Registry) Types() []string {
	names := make([]string, 0, len(r))
	for n := range r {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Params are a plug-in's parameters as they stand in the file.
type Params struct {
	node  *yaml.Node
	field string
}

// NewParams wraps parameters for a factory; field names them in errors.
func NewParams(node *yaml.Node, field string) Params { return Params{node, field} }

// Decode reads the parameters into a struct whose fields carry json tags and
// hold the defaults. Unknown fields and wrong types are errors with their line;
// names count in any case, as the real EPP reads them.
func (p Params) Decode(into any) error {
	if p.node == nil {
		return nil
	}
	return strict.DecodeFold(p.node, p.field, into)
}

// Given says whether there are any parameters.
func (p Params) Given() bool { return p.node != nil }

// Errorf is an error about the parameters, with their line.
func (p Params) Errorf(format string, args ...any) error {
	return strict.At(p.node, p.field, format, args...)
}

// TypeError is the error for a plug-in that is not of the kind that its place
// asks for.
func TypeError(p Plugin, want string) error {
	return fmt.Errorf("plugin %q (type %s) is not a %s", p.Name(), p.Type(), want)
}
