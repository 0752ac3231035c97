package program

import (
	"fmt"
	"io"

	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report/diagnosis"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/scenario"
)

type diagnoseCmd struct {
	File string `arg:"" name:"recording-or-scenario" help:"A recording of run or sim (.ndjson, .ndjson.gz), or a scenario to play in virtual time."`
	setFlag
	NoRemedies bool `help:"Do not play the remedies of a scenario's leaves."`
	textOrJSON
}

func (c *diagnoseCmd) Help() string {
	return `Walks the decision trees of document 003's troubleshooting guide (docs/documents.md#document-003) and prints the
leaf that explains a symptom, with its evidence, its source, remedies, and how sure it is. A symptom is a missed
objective (slo), a missed expectation, or requests that fail; without any, crossed thresholds are notes. A scenario is
played in virtual time, and the remedies of its leaves, too, from the same seed. docs/diagnose.md lists the leaves.

Exit codes: 0 nothing is wrong; 1 there are symptoms; 2 the command line is wrong; 3 a file is wrong.

Examples:
  windtunnel diagnose yesterday.ndjson.gz                   # a recording of run or sim --record
  windtunnel diagnose examples/slo-mixed-queue.yaml         # with the effect of the remedies
  windtunnel diagnose mine.yaml --output json | jq -r '.findings[].leaf'`
}

func (c *diagnoseCmd) Run(o *outside) error {
	if recording.Named(c.File) {
		return c.recording(o)
	}
	settings, err := search.ParseSettings("--set", c.Set)
	if err != nil {
		return err
	}
	v, err := search.ReadVariant(o.Stdin, c.File, settings, scenario.Overrides{})
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	d, err := player(o).Diagnose(ctx, &v, !c.NoRemedies)
	if err != nil {
		return err
	}
	return c.end(o, d)
}

func (c *diagnoseCmd) recording(o *outside) error {
	if len(c.Set) > 0 || c.NoRemedies {
		return exit.Errorf(exit.Usage, "%s is a recording; --set and --no-remedies are for scenarios", c.File)
	}
	facts, _, err := diagnosis.ReadFile(c.File)
	switch {
	case err != nil:
		return recording.InputError(err)
	case facts.Requests == 0:
		return exit.Errorf(exit.Input, "%s has no request; expected a recording that windtunnel run or sim wrote with "+
			"--record", c.File)
	}
	return c.end(o, diagnose.Of(facts))
}

// end prints a diagnosis and returns its exit code.
func (c *diagnoseCmd) end(o *outside, d *diagnose.Diagnosis) error {
	sound := len(d.Symptoms)+len(d.Findings) == 0
	err := c.verdict(o, d, sound, func(to io.Writer, columns int) error { return diagnosis.Write(to, d, columns) },
		"does not help")
	if err == nil && !sound {
		err = exit.Told(exit.Failed, fmt.Errorf("%s", diagnosis.Verdict(d)))
	}
	return err
}
