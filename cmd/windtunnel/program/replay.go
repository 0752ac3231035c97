package program

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/web"
)

type replayCmd struct {
	Files    []string `arg:"" name:"recording" help:"A recording, or - for standard input. --through-core and --config take several that continue each other."`
	Core     bool     `name:"through-core" help:"Play the recorded inputs into the picker again, and compare."`
	Config   string   `placeholder:"FILE" help:"Make each decision again with another EndpointPickerConfig."`
	Onward   bool     `help:"Send the recorded requests in virtual time, to the model servers of --scenario."`
	Scenario string   `placeholder:"FILE" help:"With --onward, the scenario whose model servers answer."`
	shownIn
	viewFlag
	otlpFlags
	pageFlags
	Speed float64 `default:"0" placeholder:"X" help:"Play X times as fast as it was; 0 shows everything at once."`
}

func (c *replayCmd) Help() string {
	return `Shows a recording as the run was shown, or plays it through the endpoint picker: whether it still decides
the same (--through-core), what another configuration would have decided (--config), and the effect of all
decisions together (--onward, with the configuration of the scenario or that of --config; an estimate).

Examples:
  windtunnel sim --record yesterday.ndjson.gz
  windtunnel replay yesterday.ndjson.gz
  windtunnel replay yesterday.ndjson.gz --speed 1            # as fast as it was
  windtunnel replay yesterday.ndjson.gz --view lines         # one line per request
  windtunnel replay yesterday.ndjson.gz --output csv > requests.csv
  windtunnel replay yesterday.ndjson.gz --ui                 # on a page, at any speed
  windtunnel replay yesterday.ndjson.gz --output json | jq 'select(.step == "part2_sent")'
  windtunnel replay yesterday.ndjson.gz --otlp http://127.0.0.1:4318  # to a collector, or to Jaeger
  windtunnel replay yesterday.ndjson.gz --through-core       # does the picker decide as it did then?
  windtunnel replay yesterday.ndjson.gz --config other.yaml  # what would this one have decided?
  windtunnel replay yesterday.ndjson.gz --config other.yaml --onward --scenario mine.yaml`
}

// Bounds of --speed.
const slowest, fastest = 1e-3, 1e6

func (c *replayCmd) Run(o *outside) error {
	if err := c.fits(o); err != nil {
		return err
	}
	switch {
	case c.Onward != (c.Scenario != ""):
		return exit.Errorf(exit.Usage, "--onward and --scenario go together: the one sends the recorded requests, "+
			"the other describes the model servers")
	case (c.Core || c.Config != "") && !c.Onward && (c.Output != "text" && c.Output != "json" || c.JUnit != ""):
		return exit.Errorf(exit.Usage, "decisions are shown as text or json, and have no verdict on requests; csv, "+
			"parquet, the reports of other tools and --junit are for a replay, or for --onward")
	case c.Core && c.Onward:
		return exit.Errorf(exit.Usage, "--through-core plays the recorded inputs, and --onward simulates their "+
			"effects; give one of them")
	case c.Onward:
		return c.onward(o)
	case c.Core && c.Config != "":
		return exit.Errorf(exit.Usage, "--through-core plays the recorded configuration, and --config plays another "+
			"one; give one of them")
	case c.Core:
		return c.throughCore(o)
	case c.Config != "":
		return c.otherConfig(o)
	case len(c.Files) > 1:
		return exit.Errorf(exit.Usage, "found %d recordings; expected one, several only with --through-core or "+
			"--config", len(c.Files))
	}
	if c.Speed != 0 && !(c.Speed >= slowest && c.Speed <= fastest) { // also refuses NaN
		return exit.Errorf(exit.Usage, "--speed: found %v; expected 0, or from %v to %v", c.Speed, slowest,
			float64(fastest))
	}
	options := report.Options{Out: o.Out(), Color: o.Color(), Columns: o.Columns, Detail: c.detail()}
	c.set(o, &options)
	if c.View == "auto" {
		if err := c.count(&options); err != nil {
			return err
		}
	}
	if c.UI && !c.once() { // requests are judged as they end, and the summary with the SLO comes last
		if recorded, _ := report.ReadFile(c.Files[0], func(record.Event) error { return nil }); recorded != nil {
			options.SLO = recorded.SLO.SLO()
		}
	}
	page, err := c.pageFlags.start(&options, web.Meta{Mode: "replay", File: c.Files[0]})
	if err != nil {
		return err
	}
	defer page.stop()
	page.printLink(o.Stderr)
	sender, err := c.send(o, time.Now(), false, &options)
	if err != nil {
		return err
	}
	defer sender.End(o)
	session, err := report.Start(options)
	if err != nil {
		return err
	}
	page.measure(session)
	ctx, stop := o.Context()
	defer stop()
	pace := pacer{ctx: ctx, speed: c.Speed, start: time.Now()}
	events := 0
	recorded, err := readRecording(o, c.Files[0], func(e record.Event) error {
		events++
		if err := pace.wait(e.Time); err != nil {
			return err
		}
		session.Record(e)
		return nil
	})
	interrupted := errors.Is(err, context.Canceled)
	if recorded != nil {
		session.Restore(*recorded)
		page.describe(func(m *web.Meta) {
			m.Scenario, m.Seed, m.Pools = recorded.Scenario, recorded.Seed, recordedPools(recorded)
		})
		interrupted = interrupted || recorded.Interrupted
	}
	if err != nil && !interrupted && events == 0 {
		return recording.InputError(err) // there is nothing to summarize
	}
	// The readable part of a broken recording is shown.
	if _, endErr := session.End(interrupted || err != nil); endErr != nil && err == nil {
		err = endErr
	}
	switch {
	case errors.Is(err, context.Canceled):
		return exit.Reported(exit.Interrupted, err)
	case err == nil && recorded == nil:
		fmt.Fprintf(o.Stderr, "windtunnel: %s has no summary at its end: the run that wrote it did not end by itself\n",
			c.Files[0])
	}
	if page != nil && !c.once() {
		page.end()
		page.played(ctx, func(each func(line []byte) error) error { return recording.ReadInputsFile(c.Files[0], each) })
	}
	page.stay(ctx, o)
	return recording.InputError(err)
}

// once reports whether the recording can be read only once.
func (c *replayCmd) once() bool {
	info, err := os.Stat(c.Files[0])
	return c.Files[0] == "-" || err == nil && !info.Mode().IsRegular()
}

// count reads the recording once to choose how much of each request to show.
func (c *replayCmd) count(options *report.Options) error {
	if c.once() {
		options.Detail = report.Steps
		return nil
	}
	var err error
	options.Requests, err = recording.CountRequests(c.Files[0])
	options.Detail = report.DetailFor(options.Requests)
	var line *recording.LineError
	if errors.As(err, &line) {
		return nil // the error is returned after the lines before it have been shown
	}
	return recording.InputError(err)
}

// readRecording reads a recording, - for standard input.
func readRecording(o *outside, file string, each func(record.Event) error) (*report.Summary, error) {
	if file == "-" {
		return report.Read("standard input", o.Stdin, each)
	}
	return report.ReadFile(file, each)
}

// pacer plays recorded time at a multiple of wall time.
type pacer struct {
	ctx   context.Context
	speed float64
	start time.Time
}

func (p *pacer) wait(t machine.Time) error {
	if p.speed == 0 {
		return p.ctx.Err()
	}
	due := min(float64(t)/p.speed, math.MaxInt64/2) // a recording may hold any time
	if !pause.For(p.ctx, time.Duration(due)-time.Since(p.start)) {
		return p.ctx.Err()
	}
	return nil
}
