// Package program is the command windtunnel as a library. A main of your own registers plug-ins
// (core/epp/picker/plugins.Register, extend) and then calls Main, as examples/custom-scorer does.
//
// Each command is one file with one struct, and one field of the struct in cli.go. Commands that run one part are in
// package parts. A console gives commands access to the process, so that tests can run the whole program.
package program

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/lab"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/ports"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/gc"
	"github.com/windtunnel/windtunnel/scenario"
)

// outside is the process, as far as a command uses it.
type outside = console.Console

// Main runs the process's command line and returns the exit code.
func Main() int {
	gc.Serve()
	return run(lab.CommandLine(os.Args[0], os.Args[1:]), console.New())
}

// run runs a command line and returns the exit code.
func run(args []string, o *outside) int {
	err := execute(args, o)
	if err == nil {
		return int(exit.OK)
	}
	printError(o, err)
	if taken := ports.Taken(err, args); taken != "" && !exit.IsReported(err) {
		fmt.Fprintf(o.Stderr, "  %s\n", taken)
	}
	return int(exit.Of(err))
}

// printError prints an error and its hint on stderr.
func printError(o *outside, err error) {
	if exit.IsReported(err) {
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
