package program

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/client"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/scenario"
)

type sendCmd struct {
	loadFlags
	outputFlags
	setFlag
	Target  string `placeholder:"HOST:PORT" help:"The gateway or model server, which runs elsewhere."`
	Results string `placeholder:"DIR" help:"The directory of clients that send together."`
	divideFlags
	Wait time.Duration `default:"5m" help:"How long a part waits until all others are there."`
}

func (c *sendCmd) Help() string {
	return `Sends a scenario's requests to a gateway that runs elsewhere, in a cluster for instance, and reports what
the client sees. Pools of the scenario give the model and the form of requests. Several clients can share one
schedule: each sends every N-th arrival, all begin together, and the report is the one of a single client.

Examples:
  windtunnel load mine.yaml --target gateway.example:80 --rate 50 -n 5000
  windtunnel load mine.yaml --target gateway.example:80 --results shared --share 0/2   # on one machine
  windtunnel load mine.yaml --target gateway.example:80 --results shared --share 1/2   # on another
  windtunnel load mine.yaml --results shared --collect                                 # one report
  windtunnel load mine.yaml --target gateway:80 --rate 5000 -n 100000 --on kubernetes  # pods in its cluster`
}

// ready returns the scenario, or an error for a wrong flag or file. Several clients are parts of one load.
func (c *sendCmd) ready(o *outside, several bool) (*scenario.Scenario, error) {
	s, err := c.scenarioWith(o, c.Set)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Results == "" && (c.Share.Of > 0 || c.Collect):
		return nil, exit.Errorf(exit.Usage, "--share and --collect: found no --results; expected the directory that "+
			"the clients share")
	case c.Target == "" && !c.Collect:
		return nil, exit.Errorf(exit.Usage, "--target is missing; expected the address of a gateway, such as "+
			"gateway:80")
	case several && s.Load().Requests.Rate <= 0:
		return nil, exit.Errorf(exit.Usage, "several clients: the scenario is a closed loop, whose next request "+
			"follows from an answer; expected --rate, or workload.rate in the scenario")
	case several && c.Record != "":
		return nil, exit.Errorf(exit.Usage, "several clients: found --record; expected none, since each records its "+
			"part in --results")
	}
	return s, c.check(o, s, c.inputs(s))
}

// manyForOne is the rate in requests/s that one pod sends on a cluster, as a rule.
const manyForOne = 1000

// Check is Divided's.
func (c *sendCmd) Check(o *outside) (inputs []string, shares int, err error) {
	if err := c.alone(c.File, c.Results); err != nil {
		return nil, 0, err
	}
	s, err := c.ready(o, true)
	if err != nil {
		return nil, 0, err
	}
	return append(s.Files(), c.File), max(2, int(math.Ceil(s.Load().Requests.Rate/manyForOne))), nil
}

// Collected is Divided's. The file has what the command prints.
func (c *sendCmd) Collected(o *outside, file string) error {
	f, err := os.Open(file)
	if err == nil {
		_, err = io.Copy(o.Bytes(), f)
		err = errors.Join(err, f.Close())
	}
	return exit.With(exit.Environment, err)
}

func (c *sendCmd) Run(o *outside) error {
	shared := c.Share.Of > 0
	s, err := c.ready(o, shared)
	if err != nil {
		return err
	}
	load := s.Load()
	ctx, stop := o.Context()
	defer stop()
	began := time.Now()
	if shared {
		if began, err = client.Together(ctx, c.Results, c.Share.Index, c.Share.Of, c.Wait); err != nil {
			return exit.Errorf(exit.Input, "--results: %w", err)
		}
	}
	options := c.options(o, s, runClock(began))
	switch {
	case c.Collect:
		options.Clock = nil
	case shared:
		options.File, options.Judge = c.part(c.Share.Index, c.Share.Of), nil
		options.Requests, options.InFlight = 0, load.Concurrency
	}
	session, err := report.Start(options)
	if err != nil {
		return exit.With(exit.Input, err)
	}
	if c.Collect {
		err = c.merge(session)
	} else {
		load.Requests.Share, load.Requests.Shares = c.Share.Index, c.Share.Of
		err = client.Run(ctx, client.Options{Target: c.Target, HTTP2: load.HTTP2, Chunked: load.Chunked,
			Timeout: load.Timeout, Requests: load.Requests.Requests, Concurrency: load.Concurrency,
			Workload: load.Requests, Recorder: session, Now: runClock(began), Connections: 1 + load.Concurrency/80})
	}
	summary, endErr := session.End(ctx.Err() != nil)
	if err := errors.Join(err, endErr); err != nil && ctx.Err() == nil {
		return err
	}
	if shared && ctx.Err() == nil {
		return nil // the report of all parts has the verdict
	}
	return verdict(summary)
}

// part returns the file that records a part.
func (c *sendCmd) part(index, of int) string {
	return filepath.Join(c.Results, fmt.Sprintf("part-%d-of-%d.ndjson.gz", index, of))
}

// merge records the events of all parts in the order of their times.
func (c *sendCmd) merge(to *report.Session) error {
	list, err := filepath.Glob(filepath.Join(c.Results, "part-*-of-*.ndjson.gz"))
	if err != nil || len(list) == 0 {
		return exit.Errorf(exit.Input, "--results %s: found no parts; expected those of windtunnel load --share",
			c.Results)
	}
	var index, of int
	name := filepath.Base(list[0])
	if _, err := fmt.Sscanf(name, "part-%d-of-%d.ndjson.gz", &index, &of); err != nil || of != len(list) {
		return exit.Errorf(exit.Input, "--results %s: found %d parts, among them %s; expected all parts of one load",
			c.Results, len(list), name)
	}
	return recording.Merge(list, to.Record)
}
