package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/meter"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/rundir"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/hops"
	"github.com/windtunnel/windtunnel/report/recording"
)

type validateCmd struct {
	loadFlags
	setFlag
	envoyFlag
	Tolerance float64 `default:"5" placeholder:"PERCENT" help:"By how much a latency may differ before it is marked."`

	Measured bool `name:"measured-hops" help:"Use hops in virtual time that an extra live run measures."`
	Fail     bool `help:"Exit with code 1 if outcomes differ, or a latency at p50 or p90 by more than the tolerance."`
	textOrJSON
}

func (c *validateCmd) Help() string {
	return `Plays the scenario live, through a real Envoy, and in virtual time. Reports how much virtual time differs:
latencies by percentile and request by request, outcomes, and each request's endpoint. The machine has to be
idle, since other work slows the live run down.

Examples:
  windtunnel validate examples/plain.yaml
  windtunnel validate mine.yaml -n 500 --output json
  windtunnel validate mine.yaml --measured-hops        # with hops as they are on this machine
  windtunnel validate mine.yaml --tolerance 10 --fail`
}

func (c *validateCmd) Run(o *outside) error {
	if c.File == "-" {
		return exit.Errorf(exit.Usage, "a scenario on standard input can be read once, and is played twice; "+
			"expected a file")
	}
	if err := search.CheckTolerance(c.Tolerance); err != nil {
		return err
	}
	quiet := *o
	quiet.Stderr = io.Discard // the live run prints the notes
	v, err := c.variant(&quiet, c.Set)
	if err != nil {
		return err
	}
	p := player(o)
	end := meter.Watch(o, p)
	defer end()
	dir, err := rundir.New(os.TempDir(), rundir.Validate, nil)
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	defer func() { _ = dir.End(nil) }()
	path := filepath.Join(dir.Path, "live.ndjson")
	var took *hops.Times
	if c.Measured {
		if took, err = c.measured(o, p, &v, filepath.Join(dir.Path, "hops.ndjson")); err != nil {
			return err
		}
	}
	if err := c.live(o, p, &v, path, c.loadFlags); err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	out, err := p.Validate(ctx, &v, path, took, c.Tolerance)
	end()
	if err != nil {
		return err
	}
	err = c.verdict(o, out, !out.Off(), out.Write, " differs")
	if err == nil && c.Fail && out.Off() {
		return exit.Reported(exit.Failed, errors.New("virtual time is off"))
	}
	return err
}

// live plays the scenario in wall time, into a recording, and counts the requests that end.
func (c *validateCmd) live(o *outside, p *search.Player, v *search.Variant, path string, flags loadFlags) error {
	s, err := v.Scenario(0)
	if err != nil {
		return err
	}
	requests := s.Workload.Requests
	if s.Workload.Uncounted() {
		requests = 0
	}
	var count func()
	tally := report.NewTally()
	tally.OnEnded(func(*report.Ended) {
		if count == nil { // while the stack starts, its parts may write to stderr
			count = p.Counter("requests in wall time", requests)
		}
		count()
	})
	live := runCmd{also: tally, loadFlags: flags, setFlag: c.setFlag, envoyFlag: c.envoyFlag,
		outputFlags: outputFlags{shownIn: shownIn{Output: "text"}, viewFlag: viewFlag{"progress"}, Record: path},
		Wait:        time.Minute}
	fmt.Fprintln(o.Stderr, "playing in wall time, which takes as long as the scenario does")
	quiet := *o
	quiet.Stdout, quiet.Screen, quiet.Terminal = io.Discard, nil, false
	if err := live.Run(&quiet); err != nil && exit.Of(err) != exit.Failed { // failed requests are compared as well
		return err
	}
	return nil
}

// measured returns the hops of a live run with another seed.
func (c *validateCmd) measured(o *outside, p *search.Player, v *search.Variant, path string) (*hops.Times, error) {
	s, err := v.Scenario(1)
	if err != nil {
		return nil, err
	}
	flags := c.loadFlags
	flags.Seed = &s.Seed
	if err := c.live(o, p, v, path, flags); err != nil {
		return nil, err
	}
	recorded, err := recording.ReadFile[report.Summary](path, func(record.Event) error { return nil })
	switch {
	case err != nil:
		return nil, recording.InputError(err)
	case recorded == nil || recorded.HopTimes == nil:
		return nil, exit.Errorf(exit.Environment, "the first live run measured no hops; expected requests that "+
			"complete")
	}
	return recorded.HopTimes, nil
}
