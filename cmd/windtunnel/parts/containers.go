package parts

import (
	"io"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/sidecar"
	"github.com/windtunnel/windtunnel/live/up"
)

// line parses the arguments of a container as the command line of its part, with the container's environment.
func line(o *console.Console, part any, name string, args []string, env func(string) (string, bool)) (*console.Console,
	error) {
	inner := *o
	inner.Env = env
	parser, err := kong.New(part, kong.NoDefaultHelp(), kong.Resolvers(inner.Flags()), kong.Bind(&inner))
	if err == nil {
		_, err = parser.Parse(Args(append([]string{name}, args...), &inner)[1:])
	}
	return &inner, err
}

// once passes each text on once: command lines are read when manifests are checked, and at the start of each pod.
type once struct {
	to   io.Writer
	seen map[string]bool
}

// Write implements io.Writer.
func (w once) Write(text []byte) (int, error) {
	if w.seen[string(text)] {
		return len(text), nil
	}
	w.seen[string(text)] = true
	return w.to.Write(text)
}

// reader is the console of what reads containers.
func reader(o *console.Console) *console.Console {
	inner := *o
	inner.Stderr = once{o.Stderr, map[string]bool{}}
	return &inner
}

// SidecarOptions returns a function that parses the arguments and the environment of a sidecar's container.
func SidecarOptions(o *console.Console) func(args []string, env func(string) (string, bool)) (sidecar.Options, error) {
	o = reader(o)
	return func(args []string, env func(string) (string, bool)) (sidecar.Options, error) {
		var c Sidecar
		inner, err := line(o, &c, "sidecar", args, env)
		if err != nil {
			return sidecar.Options{}, err
		}
		return c.options(inner)
	}
}

// PickerOptions returns a function that parses the arguments and the environment of an endpoint picker's container.
func PickerOptions(o *console.Console) func(args []string, env func(string) (string, bool)) (epp.StandaloneOptions,
	error) {
	o = reader(o)
	return func(args []string, env func(string) (string, bool)) (epp.StandaloneOptions, error) {
		var c EPP
		inner, err := line(o, &c, "epp", args, env)
		if err != nil {
			return epp.StandaloneOptions{}, err
		}
		log, err := newLog(inner.Stderr, c.Verbosity, c.Zap, c.ZapLevel)
		if err != nil {
			return epp.StandaloneOptions{}, err
		}
		return c.options(log)
	}
}

// UpOptions returns the options by which live/up reads the containers of its parts.
func UpOptions(o *console.Console) up.Options {
	return up.Options{Sidecar: SidecarOptions(o), Picker: PickerOptions(o), Predictor: PredictorOptions,
		Trainer: UpTrainer(o)}
}
