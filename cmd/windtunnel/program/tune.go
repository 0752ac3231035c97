package program

import (
	"errors"
	"fmt"
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
	pageFlags
	More []string `arg:"" optional:"" name:"more.yaml" help:"More scenarios of the same pools: each candidate plays all of them."`

	Combine string   `default:"mean" placeholder:"HOW" help:"How the values of several scenarios become one: mean, worst, or weights such as 3,1."`
	HoldOut float64  `placeholder:"PERCENT" default:"30" help:"The end of a trace that the search does not see, and that decides."`
	Vary    []string `placeholder:"PATH=RANGE" sep:"none" help:"A field that varies, such as 'pools[0].replicas=2..8', log:1..100 for equal ratios, values a,b,c, PLUGIN/PARAMETER=RANGE (without =RANGE: what its checks accept), weights: those of the picker's scorers, as by default, or split: prefill to decode servers. Repeatable."`
	Where   []string `placeholder:"CONDITION" sep:"none" help:"What all candidates meet, such as 'replicas * tensorParallelSize <= 16'. Repeatable."`

	Objective []string `placeholder:"MEASURE" sep:"none" help:"The measure to improve, such as e2e.p99 or 'USD per 1M output tokens', or min: or max: before a number of the summary or an expression. Left out: goodput where there is an objective for answers, else e2e.mean. Twice: the best trade-offs of two."`
	Keep      []string `placeholder:"BOUND" sep:"none" help:"A bound to keep, such as ttft.p95<=500ms or 'classes[chat].attainment >= 0.95'. Repeatable."`
	sloFlag
	Runs         int           `default:"600" placeholder:"N" help:"The most runs of the search, short ones included."`
	Time         time.Duration `placeholder:"5m" help:"The most wall time of the search."`
	Replications int           `short:"r" default:"8" placeholder:"R" help:"How many fresh seeds decide."`
	Indifference float64       `default:"1" placeholder:"PERCENT" help:"A gain too small to care about."`
	Results      string        `aliases:"resume" placeholder:"DIR" help:"Keep the runs in DIR, and continue the search whose runs are there (also --resume)."`
	divideFlags
	FromCluster bool `help:"Read the scenario from a cluster, by windtunnel-k8s, which has more flags (docs/kubernetes.md)."`

	Write  string `placeholder:"FILE" help:"Write the best EndpointPickerConfig to FILE (of the only pool whose picker varies)."`
	Output string `short:"o" enum:"text,json,csv,parquet" default:"text" help:"text for people, json, or the candidates as a table."`
}

func (c *tuneCmd) Help() string {
	return `Searches the configuration that is best for an objective, in virtual time and on all cores. Candidates race:
all meet the same requests, and bad ones leave after a ninth of a run. The best three and today's configuration then
play again with fresh seeds, and only these runs decide. "No configuration is better than yours by more than
1.0 %" is a valid answer. At the end, each knob moves alone around the best candidate, which shows those that
matter. The same seed gives the same result, on any number of cores, unless --time ends the search.
--results keeps the runs in a directory: the same command continues an interrupted search, with the same result.
With --share, several processes play one search in the directory, and --collect prints its result.
The scenario's section tune has vary, where, objective and keep of commands without these flags.

Exit codes: 0 the search came to its end; 2 the command line is wrong; 3 a file is wrong; 130 interrupted: the best so
far is printed.

Examples:
  windtunnel tune mine.yaml
  windtunnel tune mine.yaml --objective ttft.p90 --keep 'completed>=99.9%'
  windtunnel tune --epp-config my-epp.yaml --model meta-llama/Llama-3.1-8B-Instruct --accelerator H100 --replicas 8
  windtunnel tune mine.yaml --vary 'pools[0].modelServer.maxNumSeqs=log:16..512' --vary weights
  windtunnel tune mine.yaml --vary approx-prefix-cache-producer/blockSizeTokens=16,32,64 --vary split
  windtunnel tune monday.yaml tuesday.yaml --combine worst --results runs
  windtunnel tune mine.yaml --objective 'max:classes[chat].attainment' --objective 'USD per 1M output tokens'
  windtunnel tune mine.yaml --objective 'min:ttft_p99 + 20 * tpot_p99' --output csv > candidates.csv
  windtunnel tune --from-cluster                                               # docs/kubernetes.md
  windtunnel tune --recording epp.ndjson.gz --accelerator H100
  windtunnel tune mine.yaml --on kubernetes
  windtunnel tune mine.yaml --objective ttft.p90 --objective tpot.mean --ui    # the front on a page, each point's run
  windtunnel tune mine.yaml --write tuned.yaml`
}

// search returns what to search, or an error for a wrong flag or file.
func (c *tuneCmd) search(o *outside) (x tune.Options, err error) {
	if c.Write != "" && len(c.Vary) > 0 && !slices.ContainsFunc(c.Vary, tune.ChangesPicker) {
		return x, exit.Errorf(exit.Usage, "--write %s: nothing of a picker varies; expected --vary weights, too",
			c.Write)
	}
	if err := (&shownIn{Output: c.Output}).fits(o); err != nil {
		return x, err
	}
	x = tune.Options{Vary: c.Vary, Where: c.Where, Objectives: c.Objective, Keep: c.Keep, SLO: c.SLO, Runs: c.Runs,
		Time: c.Time, Replications: c.Replications, Indifference: c.Indifference / 100, Combine: c.Combine,
		HoldOut: c.HoldOut / 100, Division: c.division(c.Results)}
	for _, file := range append([]string{c.File}, c.More...) {
		f := c.loadFlags
		f.File = file
		v, err := f.variant(o, c.Set)
		if err != nil {
			return x, err
		}
		x.Variants = append(x.Variants, v)
	}
	s, err := x.Variants[0].Scenario(0)
	if err == nil {
		x.Seed = s.Seed
	}
	return x, err
}

func (c *tuneCmd) Run(o *outside) error {
	x, err := c.search(o)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	p, began := player(o), time.Now()
	end := c.watch(o, p)
	out, err := tune.Tune(ctx, p, x)
	end()
	if out == nil || c.Share.Of > 0 {
		return err
	}
	note(o, fmt.Sprintf("the search took %.0f s", time.Since(began).Seconds()))
	switch c.Output {
	case "csv":
		err = errors.Join(err, out.WriteTable(o.Stdout, false))
	case "parquet":
		err = errors.Join(err, out.WriteTable(o.Bytes(), true))
	default:
		err = errors.Join(err, textOrJSON{c.Output}.verdict(o, out, true,
			func(to io.Writer, _ int) error { return out.Write(to) }))
	}
	if c.Write != "" {
		err = errors.Join(err, c.write(out))
	}
	if err != nil || !c.UI {
		return err
	}
	return c.show(o, out)
}

// write writes the only configuration.
func (c *tuneCmd) write(out *tune.Tuned) error {
	if len(out.Configs) != 1 {
		return exit.Errorf(exit.Usage, "--write %s: the pickers of %d pools vary; expected one", c.Write,
			len(out.Configs))
	}
	text := slices.Collect(maps.Values(out.Configs))[0]
	return exit.With(exit.Environment, os.WriteFile(c.Write, []byte(text), 0o644)) //nolint:gosec // a configuration
}
