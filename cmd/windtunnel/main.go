// Command windtunnel plays the llm-d request flow: real Envoy, endpoint picker
// and sidecar around simulated model servers, in wall time (run) or in virtual
// time (sim).
//
// Each command is one file with one struct, and one field of the struct in
// cli.go. What a command needs from outside comes in through outside, so that
// tests can play the whole program.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/scenario"
)

func main() { os.Exit(run(os.Args[1:], theOutside())) }

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
	var quiet alreadyTold
	if errors.As(err, &quiet) {
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

// alreadyTold is an error whose words the user has seen; only its exit code is
// left to give.
type alreadyTold struct{ error }

func (a alreadyTold) Unwrap() error { return a.error }
