// Package program is the whole of the command windtunnel, importable: a main of
// your own registers plug-ins (core/epp/picker/plugins.Register, extend) and then
// calls Main, as examples/custom-scorer does.
//
// Each command is one file with one struct, and one field of the struct in
// cli.go; those of one part alone are in parts. What a command needs from outside
// comes in through a console, so that tests can play the whole program.
package program

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/gc"
	"github.com/windtunnel/windtunnel/scenario"
)

// outside is all that a command may touch.
type outside = console.Console

// Main is the program: it reads the command line and returns the exit code.
func Main() int {
	gc.Serve()
	return run(os.Args[1:], console.New())
}

// run is the program: arguments and the outside in, exit code out.
func run(args []string, o *outside) int {
	err := execute(args, o)
	if err == nil {
		return int(exit.OK)
	}
	tell(o, err)
	return int(exit.Of(err))
}

// tell prints an error for people on stderr: what happened, then what to do.
func tell(o *outside, err error) {
	if exit.IsTold(err) {
		return
	}
	var problems scenario.Problems
	text := err.Error()
	if errors.As(err, &problems) && len(problems) > 1 {
		text = fmt.Sprintf("%d mistakes:\n%s", len(problems), text)
	}
	fmt.Fprintf(o.Stderr, "windtunnel: %s\n", strings.TrimRight(text, "\n"))
	if hint := exit.HintOf(err); hint != "" {
		fmt.Fprintf(o.Stderr, "  %s\n", hint)
	}
}
