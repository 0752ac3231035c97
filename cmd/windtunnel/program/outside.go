package program

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
)

// outside is everything that a command may touch and that a test may want to
// replace. Commands use nothing else of package os.
type outside struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// screen is Stdout for the one who may colour it; see out.
	screen io.Writer
	// Env looks up an environment variable.
	Env func(name string) (string, bool)
	// Terminal reports whether Stdout is one, and Columns how wide it is.
	Terminal bool
	Columns  int
	// Context ends when the user interrupts, closes the terminal, or no longer
	// reads Stdout; a second interrupt kills.
	Context func() (context.Context, context.CancelFunc)
}

func theOutside() *outside {
	columns, _, _ := term.GetSize(int(os.Stdout.Fd())) // 0 when it is none
	stdout := &pipe{Writer: os.Stdout, left: func() {}}
	return &outside{
		Stdin: os.Stdin, Stdout: report.PrintableWriter(stdout), Stderr: report.PrintableWriter(os.Stderr), screen: stdout,
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
			// the recording's end unwritten.
			signal.Ignore(syscall.SIGPIPE)
			return ctx, func() { stdout.left(); stop() }
		},
	}
}

// out is where a report goes: it colours, and lets nothing from outside steer
// the terminal. All else goes through a writer that does the latter.
func (o *outside) out() io.Writer {
	if o.color() && o.screen != nil {
		return o.screen
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
		err = exit.With(exit.Interrupted, alreadyTold{err})
	}
	return n, err
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
