package picker

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Stability is the maturity of a plug-in type.
type Stability uint8

// The stabilities of llm-d-router. Alpha types need the flag --allow-experimental-plugins; deprecated types cause a
// warning.
const (
	Beta Stability = iota
	Alpha
	Deprecated
)

// Factory makes one instance of a plug-in from its parameters.
type Factory func(b *Builder, name string, params Params) (Plugin, error)

// Configurer is a plug-in that completes itself from its parameters after they were read into it, or refuses them.
type Configurer interface {
	Configure(b *Builder, name string, p Params) error
}

// Completer is a plug-in that completes itself after its parameters were read into it. It refuses none.
type Completer interface{ Complete(b *Builder, name string) }

// instance is a plug-in of type T.
type instance[T any] interface {
	*T
	Plugin
}

// Plain returns the factory of a plug-in type without parameters. Like the real EPP, it ignores given ones.
func Plain[T any, P instance[T]]() Factory {
	return func(*Builder, string, Params) (Plugin, error) { return P(new(T)), nil }
}

// Of returns the factory of a plug-in type with default values. It reads the parameters over them (Params.Decode) and
// then calls Configure or Complete, if there is one. Instances share what the values point to.
func Of[T any, P instance[T]](values T) Factory {
	return func(b *Builder, name string, params Params) (Plugin, error) {
		made := values
		if err := params.Decode(&made); err != nil {
			return nil, err
		}
		switch x := any(&made).(type) {
		case Configurer:
			if err := x.Configure(b, name, params); err != nil {
				return nil, err
			}
		case Completer:
			x.Complete(b, name)
		}
		return P(&made), nil
	}
}

// Link finds a consumer's plug-in by name once all are declared, or makes a default one (Ensure). The plug-in must be a
// T; want describes T in the error.
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
	// Kind is the instances' purpose, if they implement no interface of this package: one of the kinds in kinds.go, or
	// another description of what other plug-ins call. The Builder refuses an instance with neither.
	Kind string
}

// Registry maps type names to factories. It is an ordinary map: a program can add its own types to the built-in ones
// and build a picker.
type Registry map[string]Registration

// Types lists the registered names in order.
func (r Registry) Types() []string { return slices.Sorted(maps.Keys(r)) }

// Params are a plug-in's parameters in the configuration file.
type Params struct{ at strictyaml.Value }

// Decode reads the parameters into a struct whose fields have json tags and hold the defaults. The tags min, max, above
// and oneof limit them (strictyaml.Fields). Like the real EPP, it ignores the case of names. The error has every
// mistake with its place.
func (p Params) Decode(into any) error { return p.at.Fold().Decode(into).Err() }

// Given reports whether there are any parameters.
func (p Params) Given() bool { return p.at.Given() }

// At returns one of the parameters, such as "podDiscoveryConfig.socketPort", for errors about it.
func (p Params) At(path string) Params { return Params{p.at.Fold().At(path)} }

// Errorf returns an error about the parameters, with their place.
func (p Params) Errorf(format string, args ...any) error {
	return p.at.Problem(fmt.Sprintf(format, args...), "", "")
}

// Locate returns an error with the parameters' place, nil for nil.
func (p Params) Locate(err error) error {
	if err == nil {
		return nil
	}
	return p.Errorf("%v", err)
}

// Plugin returns the declared plug-in that this parameter, or its default, names. An error has the parameter's place.
func (p Params) Plugin(b *Builder, name string) (Plugin, error) {
	pl, err := b.Plugin(name)
	if err == nil || errors.Is(err, errReported) {
		return pl, err
	}
	return nil, p.at.ProblemsOf(err)
}

// Expected returns an error with the found value and the expected one.
func (p Params) Expected(what string) error { return p.at.Problem(p.at.Found(), what, "") }

// TypeError returns the error for a plug-in that is not of the kind that its place requires.
func TypeError(p Plugin, want string) error {
	return fmt.Errorf("plugin %q (type %s) is not a %s", p.Name(), p.Type(), want)
}
