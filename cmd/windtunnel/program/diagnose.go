package program

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/live/prometheus"
	"github.com/windtunnel/windtunnel/report/diagnosis"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/scenario"
)

type diagnoseCmd struct {
	File string `arg:"" optional:"" name:"recording-or-scenario" help:"A recording of run or sim (.ndjson, .ndjson.gz), or a scenario to play in virtual time."`
	setFlag
	NoRemedies bool `help:"Do not play the remedies of a scenario's leaves."`

	Prometheus string        `placeholder:"URL" help:"Read a cluster's metrics from this Prometheus instead, such as http://127.0.0.1:9091."`
	For        time.Duration `default:"15m" help:"With --prometheus, how much of the time until now counts."`
	sloFlag
	Manifests []string `placeholder:"FILE,…" help:"Read Kubernetes manifests instead, files or directories, and start nothing."`
	textOrJSON
}

func (c *diagnoseCmd) Help() string {
	return `Walks the decision trees of document 003's troubleshooting guide (docs/documents.md#document-003) and prints
the leaf that explains a symptom, with its evidence, its source, remedies, and how sure it is. A symptom is a missed
objective (slo), a missed expectation, or requests that fail; without any, crossed thresholds are notes. A scenario is
played in virtual time, and the remedies of its leaves, too, from the same seed. Manifests are read without a
symptom: their mistakes are certain. docs/diagnose.md lists the leaves.

Exit codes: 0 nothing is wrong; 1 there are symptoms or mistakes; 2 the command line is wrong; 3 a file is wrong; 5
Prometheus does not answer.

Examples:
  windtunnel diagnose yesterday.ndjson.gz                   # a recording of run or sim --record
  windtunnel diagnose examples/slo-mixed-queue.yaml         # with the effect of the remedies
  windtunnel diagnose --prometheus http://127.0.0.1:9091 --slo ttft=500ms,tpot=40ms
  windtunnel diagnose --manifests examples/manifests/document-003
  windtunnel diagnose mine.yaml --output json | jq -r '.findings[].leaf'`
}

func (c *diagnoseCmd) Run(o *outside) error {
	given := 0
	for _, is := range []bool{c.File != "", c.Prometheus != "", len(c.Manifests) > 0} {
		if is {
			given++
		}
	}
	plays := c.File != "" && !recording.Named(c.File)
	switch {
	case given != 1:
		return exit.Errorf(exit.Usage, "found %d sources; expected one of a recording, a scenario, --prometheus and "+
			"--manifests", given)
	case !plays && (len(c.Set) > 0 || c.NoRemedies):
		return exit.Errorf(exit.Usage, "--set and --no-remedies are for scenarios, which can be played")
	case c.Prometheus == "" && len(c.SLO) > 0:
		return exit.Errorf(exit.Usage, "--slo is for --prometheus; a scenario has its own (--set workload.slo=…), and "+
			"so has its recording")
	}
	ctx, stop := o.Context()
	defer stop()
	var d *diagnose.Diagnosis
	var err error
	switch {
	case plays:
		d, err = c.scenario(ctx, o)
	case c.Prometheus != "":
		d, err = c.cluster(ctx)
	case len(c.Manifests) > 0:
		d, err = c.manifests(o)
	default:
		d, err = c.recording()
	}
	if err != nil {
		return err
	}
	return c.end(o, d)
}

func (c *diagnoseCmd) scenario(ctx context.Context, o *outside) (*diagnose.Diagnosis, error) {
	settings, err := search.ParseSettings("--set", c.Set)
	if err != nil {
		return nil, err
	}
	v, err := search.ReadVariant(o.Stdin, c.File, settings, scenario.Overrides{})
	if err != nil {
		return nil, err
	}
	return player(o).Diagnose(ctx, &v, !c.NoRemedies)
}

func (c *diagnoseCmd) recording() (*diagnose.Diagnosis, error) {
	facts, _, err := diagnosis.ReadFile(c.File)
	switch {
	case err != nil:
		return nil, recording.InputError(err)
	case facts.Requests == 0:
		return nil, exit.Errorf(exit.Input, "%s has no request; expected a recording that windtunnel run or sim wrote "+
			"with --record", c.File)
	}
	return diagnose.Of(facts), nil
}

// Bounds of --for.
const shortestWindow, longestWindow = time.Minute, 31 * 24 * time.Hour

func (c *diagnoseCmd) cluster(ctx context.Context) (*diagnose.Diagnosis, error) {
	slo, err := record.ParseSLO(c.SLO)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--slo: %w", err)
	}
	if c.For < shortestWindow || c.For > longestWindow {
		return nil, exit.Errorf(exit.Usage, "--for: found %s; expected %s to %s", c.For, shortestWindow, longestWindow)
	}
	s, err := prometheus.New(c.Prometheus)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--prometheus: %w", err)
	}
	facts, err := diagnosis.Cluster(ctx, s, diagnosis.Window{To: time.Now(), For: c.For, SLO: slo})
	switch {
	case ctx.Err() != nil:
		return nil, exit.Reported(exit.Interrupted, ctx.Err())
	case err != nil:
		return nil, exit.Errorf(exit.Broken, "--prometheus: %w", err)
	case len(facts.Figures) == 0:
		return nil, exit.Errorf(exit.Broken, "--prometheus %s: it has no metric of vLLM, llm-d or document 003 in the "+
			"last %s; expected one that scrapes them (windtunnel observe writes its configuration)", c.Prometheus,
			c.For)
	}
	return diagnose.Of(facts), nil
}

// manifests diagnoses what manifests check finds.
func (c *diagnoseCmd) manifests(o *outside) (*diagnose.Diagnosis, error) {
	s, p, err := compiled(o, c.Manifests)
	if err != nil {
		return nil, err
	}
	f := &diagnose.Facts{}
	say := func(text string) { f.Complaints = append(f.Complaints, diagnose.Complaint{Text: text}) }
	if err := p.Mistakes; err != nil {
		for line := range strings.Lines(err.Error()) {
			say("mistake: " + strings.TrimSpace(line))
			f.Symptoms = append(f.Symptoms, strings.TrimSpace(line))
		}
	}
	for _, text := range append(s.Warnings, p.Notes...) {
		say(text)
	}
	return diagnose.Of(f), nil
}

// end prints a diagnosis and returns its exit code.
func (c *diagnoseCmd) end(o *outside, d *diagnose.Diagnosis) error {
	sound := len(d.Symptoms)+len(d.Findings) == 0
	err := c.verdict(o, d, sound, func(to io.Writer, columns int) error { return diagnosis.Write(to, d, columns) },
		"does not help")
	if err == nil && !sound {
		err = exit.Reported(exit.Failed, fmt.Errorf("%s", diagnosis.Verdict(d)))
	}
	return err
}
