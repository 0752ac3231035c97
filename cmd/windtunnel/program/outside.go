package program

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// outside is everything that a command may touch and that a test may want to
// replace. Commands use nothing else of package os.
type outside struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Env looks up an environment variable.
	Env func(name string) (string, bool)
	// Terminal reports whether Stdout is one.
	Terminal bool
	// Context ends when the user interrupts; a second interrupt kills.
	Context func() (context.Context, context.CancelFunc)
}

func theOutside() *outside {
	return &outside{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Env:      os.LookupEnv,
		Terminal: term.IsTerminal(int(os.Stdout.Fd())),
		Context: func() (context.Context, context.CancelFunc) {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			context.AfterFunc(ctx, stop)
			return ctx, stop
		},
	}
}

// color reports whether to colour Stdout: on a terminal that can, unless
// NO_COLOR is set (https://no-color.org).
func (o *outside) color() bool {
	if _, no := o.Env("NO_COLOR"); no || !o.Terminal {
		return false
	}
	kind, _ := o.Env("TERM")
	return kind != "dumb"
}
