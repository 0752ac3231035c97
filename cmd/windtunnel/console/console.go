// Package console holds everything that a command may use of its process, so
// that a test can play the whole program.
package console

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Console is everything that a command may touch and that a test may want to
// replace. Commands use nothing else of package os.
type Console struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Screen is Stdout for the one who may colour it; see Out.
	Screen io.Writer
	// Env looks up an environment variable.
	Env func(name string) (string, bool)
	// Terminal reports whether Stdout is one, and Columns how wide it is.
	Terminal bool
	Columns  int
	// Context ends when the user interrupts, closes the terminal, or no longer
	// reads Stdout; a second interrupt kills.
	Context func() (context.Context, context.CancelFunc)
}

// New is the process itself.
func New() *Console {
	columns, _, _ := term.GetSize(int(os.Stdout.Fd())) // 0 when it is none
	stdout := &pipe{Writer: os.Stdout, left: func() {}}
	return &Console{
		Stdin: os.Stdin, Stdout: terminal.PrintableWriter(stdout), Stderr: terminal.PrintableWriter(os.Stderr),
		Screen:   stdout,
		Env:      os.LookupEnv,
		Terminal: term.IsTerminal(int(os.Stdout.Fd())), Columns: columns,
		Context: func() (context.Context, context.CancelFunc) {
			signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
			if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
				signals = append(signals, syscall.SIGHUP)
			}
			ctx, stop := signal.NotifyContext(context.Background(), signals...)
			context.AfterFunc(ctx, stop)
			ctx, stdout.left = context.WithCancel(ctx)
			// The default is to die at once, with Envoy's files left behind and
			// the recording's end unwritten. Were the signal ignored, programs that
			// are started here would ignore it as well.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			return ctx, func() { stdout.left(); stop() }
		},
	}
}

// Out is where a report goes: it colours, and lets nothing from outside steer
// the terminal. All else goes through a writer that does the latter.
func (o *Console) Out() io.Writer {
	if o.Color() && o.Screen != nil {
		return o.Screen
	}
	return o.Stdout
}

// pipe is standard output. When its reader has left, as head does, that is an
// interruption and not a failure: the command winds up and says nothing.
type pipe struct {
	io.Writer
	left context.CancelFunc
}

func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		p.left()
		err = exit.Told(exit.Interrupted, err)
	}
	return n, err
}

// Color reports whether to colour Stdout: on a terminal that can, unless
// NO_COLOR is set (https://no-color.org).
func (o *Console) Color() bool {
	if _, no := o.Env("NO_COLOR"); no || !o.Terminal {
		return false
	}
	kind, _ := o.Env("TERM")
	return kind != "dumb"
}

// Flags fills flags from the environment, by their fromenv tag.
func (o *Console) Flags() kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if name := flag.Tag.Get("fromenv"); name != "" {
			if v, ok := o.Env(name); ok && v != "" {
				return v, nil
			}
		}
		return nil, nil
	})
}
