package program

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report/outcomes"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/report/terminal"
)

type compareCmd struct {
	Files []string `arg:"" name:"scenario-or-recording" help:"Scenarios to play, recordings, or files of --outcomes. The others are compared with the first."`
	changeFlags
	Variants []string `name:"variant" placeholder:"PATH=VALUE;…" sep:"none" help:"Also compare with the scenario with these fields changed. Repeatable."`
	sloFlag
	Replications int `short:"r" default:"1" placeholder:"R" help:"Play each with R seeds, and compare run by run."`

	FailIfWorse failIfWorse `help:"Exit with code 1 if a verdict is worse, by =ttft.p90,… of these measures."`
	textOrJSON
}

func (c *compareCmd) Help() string {
	return `Plays scenarios in virtual time from the same seed, so that each request is the same in all of them, arrives
at the same time and meets the same chances (common random numbers). Differences come from the scenarios
alone. Every difference has a 95 % confidence interval, or the reason why there is none. A recording is a
file that ends in .ndjson or .ndjson.gz. One scenario alone is compared with itself under each --variant.

The first line is the verdict. It reads a few measures: goodput and attainment where something says what a
good answer is, else ttft p90, tpot mean, e2e p90, requests/s and completed, or those of --fail-if-worse=….
It reports better or worse by chance in at most 5 of 100 comparisons. Near saturation one run is not enough:
use --replications. docs/decide.md explains the statistics.

Exit codes: 0 they were compared; 1 with --fail-if-worse where a verdict is worse; 2 the command line is
wrong, or names a measure that the runs lack; 3 a file is wrong.

Examples:
  windtunnel compare today.yaml tomorrow.yaml
  windtunnel compare mine.yaml --variant 'pools[0].replicas=8' --variant 'pools[0].replicas=8;workload.rate=40'
  windtunnel compare mine.yaml --variant 'pools[0].flow=held' -n 20000 --slo ttft=200ms,tpot=30ms
  windtunnel compare mine.yaml other.yaml --replications 10        # near saturation
  windtunnel sim mine.yaml --outcomes today.outcomes               # 40 bytes for each request
  windtunnel compare today.outcomes tomorrow.yaml                  # an earlier run with a scenario
  windtunnel compare monday.ndjson.gz tuesday.ndjson.gz            # two recordings
  windtunnel compare main.yaml branch.yaml --fail-if-worse || echo "the change made it worse"
  windtunnel compare main.yaml branch.yaml --fail-if-worse=ttft.p90,e2e.p90`
}

func (c *compareCmd) Run(o *outside) error {
	ctx, stop := o.Context()
	defer stop()
	out, err := player(o).Compare(ctx, search.CompareOptions{Files: c.Files, Stdin: o.Stdin,
		Overrides: c.overrides(), Variants: c.Variants, SLO: c.SLO, Replications: c.Replications,
		Measures: c.FailIfWorse.Measures, Note: func(text string) { note(o, text) }})
	if err != nil {
		return err
	}
	err = c.print(o, out, func(_ io.Writer, columns int) error {
		err := out.Write(o.Out(), terminal.Paint(o.Color()), columns)
		played := !recording.Named(c.Files[0]) && !outcomes.Is(c.Files[0])
		if err == nil && out.Undecided() && c.Replications == 1 && played {
			_, err = fmt.Fprintln(o.Out(), "with --replications 10, ten runs of each decide more than one")
		}
		return err
	})
	if err == nil && c.FailIfWorse.Given {
		err = out.FailIfWorse()
	}
	return err
}

// failIfWorse is a flag without a value, or with one after =. The word after a space is the next scenario.
type failIfWorse struct {
	Given    bool
	Measures []string
}

// IsBool reports that the flag needs no value.
func (*failIfWorse) IsBool() bool { return true }

// Decode parses the flag.
func (f *failIfWorse) Decode(ctx *kong.DecodeContext) error {
	f.Given = true
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		f.Measures = append(f.Measures, strings.Split(ctx.Scan.Pop().String(), ",")...)
	}
	return nil
}
