package picker

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
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

// Configurer is a plug-in that completes itself after its parameters were read into it, or refuses them.
type Configurer interface {
	Configure(b *Builder, name string, p Params) error
}

// instance is what Plain and Of make: a plug-in of type T.
type instance[T any] interface {
	*T
	Plugin
}

// Plain returns the factory of a plug-in type without parameters. It ignores those that are given, as the real EPP
// does.
func Plain[T any, P instance[T]]() Factory {
	return func(*Builder, string, Params) (Plugin, error) { return P(new(T)), nil }
}

// Of returns the factory of a plug-in type that begins with these values, reads its parameters over them
// (Params.Decode) and then, if it is a Configurer, completes itself. Instances share what the values point to.
func Of[T any, P instance[T]](values T) Factory {
	return func(b *Builder, name string, params Params) (Plugin, error) {
		made := values
		if err := params.Decode(&made); err != nil {
			return nil, err
		}
		if c, ok := any(&made).(Configurer); ok {
			if err := c.Configure(b, name, params); err != nil {
				return nil, err
			}
		}
		return P(&made), nil
	}
}

// Link finds the plug-in of a name for its consumer once all are declared, and makes one where none is (Ensure). It has
// to be a T; want says in words what that is.
func Link[T any](b *Builder, to *T, name, defaultType, dataKey, consumer, want string) {
	b.Late(func() error {
		p, err := b.Ensure(name, defaultType, dataKey, consumer)
		if err != nil {
			return err
		}
		t, ok := p.(T)
		if !ok {
			return TypeError(p, want)
		}
		*to = t
		return nil
	})
}

// Registration is one plug-in type.
type Registration struct {
	New       Factory
	Stability Stability
	// Kind is what an instance is for, where no interface of this package tells:
	// one of the kinds below, or another word for what other plug-ins ask. Without
	// it, an instance that implements none of them is refused.
	Kind string
}

// Registry maps type names to factories. It is an ordinary map: a program
// takes the built-in one, adds its own types and builds a picker with it.
type Registry map[string]Registration

// Types lists the registered names in order.
func (r Registry) Types() []string { return slices.Sorted(maps.Keys(r)) }

// Params are a plug-in's parameters as they stand in the file.
type Params struct{ at strictyaml.Value }

// Decode reads the parameters into a struct whose fields carry json tags and
// hold the defaults; the tags min, max, above and oneof limit them
// (strictyaml.Fields). The error is every mistake with its place; names count in
// any case, as the real EPP reads them.
func (p Params) Decode(into any) error { return p.at.Fold().Decode(into).Err() }

// Given reports whether there are any parameters.
func (p Params) Given() bool { return p.at.Given() }

// At returns one of the parameters, such as "podDiscoveryConfig.socketPort", for
// errors about it.
func (p Params) At(path string) Params { return Params{p.at.Fold().At(path)} }

// Errorf returns an error about the parameters, with their place.
func (p Params) Errorf(format string, args ...any) error {
	return p.at.Problem(fmt.Sprintf(format, args...), "", "")
}

// Told returns an error about the parameters with their place, nil where there is none.
func (p Params) Told(err error) error {
	if err == nil {
		return nil
	}
	return p.Errorf("%v", err)
}

// Plugin returns the declared plug-in of a name that is this parameter, or its default.
// An error has the parameter's place.
func (p Params) Plugin(b *Builder, name string) (Plugin, error) {
	pl, err := b.Plugin(name)
	if err == nil || errors.Is(err, errTold) {
		return pl, err
	}
	return nil, p.at.Told(err)
}

// Expected returns an error that tells what is written and what should be.
func (p Params) Expected(what string) error { return p.at.Problem(p.at.Found(), what, "") }

// TypeError returns the error for a plug-in that is not of the kind that its place
// asks for.
func TypeError(p Plugin, want string) error {
	return fmt.Errorf("plugin %q (type %s) is not a %s", p.Name(), p.Type(), want)
}
