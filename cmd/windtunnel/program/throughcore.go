package program

import (
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// played is the result of replay --through-core.
type played struct {
	inputlog.Counts
	// First is the first difference; nil without one.
	First *inputlog.Difference `json:"first,omitempty"`
}

// throughCore plays the recorded inputs of the picker again, and compares its effects.
func (c *replayCmd) throughCore(o *outside) error {
	p := &inputlog.Player{Registry: plugins.Builtin()}
	began := time.Now()
	if err := eachInput(o, c.Files, p.Line); err != nil {
		return recording.InputError(err)
	}
	if c.Output == "json" {
		if err := writeJSON(o.Stdout, played{p.Counts, p.First}); err != nil {
			return err
		}
	} else {
		n := p.Counts
		fmt.Fprintf(o.Stdout, "played %s of %s in %.2f s; compared %s, among them %s\n",
			terminal.Counted(n.Inputs, "input"), terminal.Counted(n.Requests, "request"), time.Since(began).Seconds(),
			terminal.Counted(n.Effects, "effect"), terminal.Counted(n.Decisions, "decision"))
		if n.Gaps > 0 {
			fmt.Fprintf(o.Stdout, "%d gaps: %d lines were never written, and %d could not be played\n", n.Gaps, n.Lost,
				n.Skipped)
		}
		if p.First == nil {
			fmt.Fprintln(o.Stdout, "no differences")
		} else {
			fmt.Fprintf(o.Stdout, "%d inputs had other effects; the first\n  %s\n", n.Different, p.First)
		}
	}
	switch {
	case p.First != nil:
		return exit.Errorf(exit.Failed, "%d of %d inputs had other effects than were recorded", p.Different, p.Inputs)
	case p.Effects == 0:
		return exit.Errorf(exit.Input, "%s has nothing that could be played", c.Files[0])
	}
	return nil
}

// eachInput reads the logs of inputs of recordings in order, - for standard input.
func eachInput(o *outside, files []string, each func(line []byte) error, others ...func(line []byte)) (err error) {
	for i := 0; i < len(files) && err == nil; i++ {
		if files[i] == "-" {
			err = recording.ReadInputs("standard input", o.Stdin, each, others...)
		} else {
			err = recording.ReadInputsFile(files[i], each, others...)
		}
	}
	return err
}
