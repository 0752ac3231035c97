package program

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/tune"
)

type tuneCmd struct {
	loadFlags
	setFlag
	Vary  []string `placeholder:"PATH=RANGE" sep:"none" help:"A field that varies, such as 'pools[0].replicas=2..8', log:1..100 for equal ratios, values a,b,c, or weights: those of the picker's scorers, as by default. Repeatable."`
	Where []string `placeholder:"CONDITION" sep:"none" help:"What all candidates meet, such as 'replicas * tensorParallelSize <= 16'. Repeatable."`

	Objective string   `placeholder:"MEASURE" help:"The measure to improve, such as e2e.p99 or 'USD per 1M output tokens'. Left out: goodput where there is an objective for answers, else e2e.mean."`
	Keep      []string `placeholder:"BOUND" sep:"none" help:"A bound to keep, such as ttft.p95<=500ms. Repeatable."`
	sloFlag
	Runs         int           `default:"600" placeholder:"N" help:"The most runs of the search, short ones included."`
	Time         time.Duration `placeholder:"5m" help:"The most wall time of the search."`
	Replications int           `short:"r" default:"8" placeholder:"R" help:"How many fresh seeds decide."`
	Indifference float64       `default:"1" placeholder:"PERCENT" help:"A gain too small to care about."`
	Write        string        `placeholder:"FILE" help:"Write the best EndpointPickerConfig to FILE (of the only pool whose scorers vary)."`
	textOrJSON
}

func (c *tuneCmd) Help() string {
	return `Searches the configuration that is best for an objective, in virtual time and on all cores. Candidates race:
all meet the same requests, and bad ones leave after a ninth of a run. The best three and today's configuration then
play again with fresh seeds, and only these runs decide. "No configuration is better than yours by more than
1.0 %" is a valid answer. At the end, each knob moves alone around the best candidate, which shows those that
matter. The same seed gives the same result, on any number of cores, unless --time ends the search.

Exit codes: 0 the search came to its end; 2 the command line is wrong; 3 a file is wrong; 130 interrupted: the best so
far is printed.

Examples:
  windtunnel tune mine.yaml
  windtunnel tune mine.yaml --objective ttft.p90 --keep 'completed>=99.9%'
  windtunnel tune --epp-config my-epp.yaml --model meta-llama/Llama-3.1-8B-Instruct --accelerator H100 --replicas 8
  windtunnel tune mine.yaml --vary 'pools[0].modelServer.maxNumSeqs=log:16..512' --vary weights
  windtunnel tune --recording epp.ndjson.gz --accelerator H100
  windtunnel tune mine.yaml --write tuned.yaml`
}

func (c *tuneCmd) Run(o *outside) error {
	if c.Write != "" && len(c.Vary) > 0 && !slices.Contains(c.Vary, tune.Weights) {
		return exit.Errorf(exit.Usage, "--write %s: no scorer varies; expected --vary weights, too", c.Write)
	}
	v, err := c.variant(o, c.Set)
	if err != nil {
		return err
	}
	s, err := v.Scenario(0)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	p := player(o)
	end := watch(o, p)
	out, err := tune.Tune(ctx, p, tune.Options{Variant: v, Vary: c.Vary, Where: c.Where, Objective: c.Objective,
		Keep: c.Keep, SLO: c.SLO, Runs: c.Runs, Time: c.Time, Replications: c.Replications,
		Indifference: c.Indifference / 100, Seed: s.Seed})
	end()
	if out == nil {
		return err
	}
	err = errors.Join(err, c.verdict(o, out, true, func(to io.Writer, _ int) error { return out.Write(to) }))
	if c.Write != "" {
		err = errors.Join(err, c.write(out))
	}
	return err
}

// write writes the only configuration.
func (c *tuneCmd) write(out *tune.Tuned) error {
	if len(out.Configs) != 1 {
		return exit.Errorf(exit.Usage, "--write %s: scorers of %d pools vary; expected those of one", c.Write,
			len(out.Configs))
	}
	text := slices.Collect(maps.Values(out.Configs))[0]
	return exit.With(exit.Environment, os.WriteFile(c.Write, []byte(text), 0o644)) //nolint:gosec // a configuration
}
