package plugins

import (
	"maps"

	"github.com/windtunnel/windtunnel/core/picker"
)

// registered are the types that the program added to the built-in ones.
var registered = picker.Registry{}

// Register adds a plug-in type to those that Builtin returns, so that run, sim,
// epp, preview and the scenario's check all know it. Call it before anything
// else, from main or init: it is not for concurrent use. A type that exists
// already is a mistake of the program, and panics.
func Register(typ string, r picker.Registration) {
	if _, exists := Builtin()[typ]; exists || typ == "" || r.New == nil {
		panic("plugins.Register: the type \"" + typ + "\" exists already, or has no name or factory")
	}
	registered[typ] = r
}

// withRegistered adds what the program registered.
func withRegistered(reg picker.Registry) picker.Registry {
	maps.Copy(reg, registered)
	return reg
}
