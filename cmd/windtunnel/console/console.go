// Package console has everything that a command uses of its process, so that a test can run the whole program.
package console

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Console has everything of the process that a command uses and a test may replace. Commands use nothing else of
// package os.
type Console struct {
	// Args are the process's arguments.
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Screen is Stdout for writers that colour; see Out.
	Screen io.Writer
	// Env looks up an environment variable.
	Env func(name string) (string, bool)
	// Terminal reports whether Stdout is a terminal, and Columns is its width.
	Terminal bool
	Columns  int
	// Context ends when the user interrupts, closes the terminal, or stops reading Stdout. A second interrupt kills the
	// process.
	Context func() (context.Context, context.CancelFunc)
}

// New returns the console of the process.
func New() *Console {
	columns, _, _ := term.GetSize(int(os.Stdout.Fd())) // 0 without a terminal
	stdout := &pipe{Writer: os.Stdout, left: func() {}}
	return &Console{
		Args:  os.Args[1:],
		Stdin: os.Stdin, Stdout: terminal.PrintableWriter(stdout), Stderr: terminal.PrintableWriter(os.Stderr),
		Screen:   stdout,
		Env:      os.LookupEnv,
		Terminal: term.IsTerminal(int(os.Stdout.Fd())), Columns: columns,
		Context: func() (context.Context, context.CancelFunc) {
			signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
			if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
				signals = append(signals, syscall.SIGHUP)
			}
			ctx, stop := signal.NotifyContext(context.Background(), signals...)
			context.AfterFunc(ctx, stop)
			ctx, stdout.left = context.WithCancel(ctx)
			// By default the signal kills the process, which leaves Envoy's files behind and a recording without its
			// end. Ignored signals are inherited by the programs that a command starts.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			return ctx, func() { stdout.left(); stop() }
		},
	}
}

// Getenv returns an environment variable, "" without it.
func (o *Console) Getenv(name string) string {
	v, _ := o.Env(name)
	return v
}

// Logger returns a log as text on Stderr.
func (o *Console) Logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(o.Stderr, &slog.HandlerOptions{Level: level}))
}

// Read returns the content of a file of at most so many bytes, - for standard input. Errors name the file.
func (o *Console) Read(file string, most int64) ([]byte, error) {
	if file == "-" {
		return files.ReadFrom("standard input", o.Stdin, most)
	}
	return files.Read(file, most)
}

// Out returns the writer for a report, which colours, and escapes text from outside itself. All other output goes
// through a writer that escapes.
func (o *Console) Out() io.Writer {
	if o.Color() && o.Screen != nil {
		return o.Screen
	}
	return o.Stdout
}

// Bytes returns Stdout for output that is no text, such as Parquet.
func (o *Console) Bytes() io.Writer {
	if w, escapes := o.Stdout.(interface{ Unescaped() io.Writer }); escapes {
		return w.Unescaped()
	}
	return o.Stdout
}

// pipe is standard output. If its reader goes away, as head does, that is an interruption and not a failure: the
// command ends without a message.
type pipe struct {
	io.Writer
	left context.CancelFunc
}

func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		p.left()
		err = exit.Reported(exit.Interrupted, err)
	}
	return n, err
}

// Color reports whether to colour Stdout: on a terminal that supports it, unless NO_COLOR is set
// (https://no-color.org).
func (o *Console) Color() bool {
	if _, no := o.Env("NO_COLOR"); no || !o.Terminal {
		return false
	}
	kind, _ := o.Env("TERM")
	return kind != "dumb"
}

// Flags sets flags from the environment, by their fromenv tag.
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
