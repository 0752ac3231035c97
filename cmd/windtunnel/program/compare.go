package program

import (
	"strings"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report/terminal"
)

type compareCmd struct {
	Files []string `arg:"" name:"scenario-or-recording" help:"Scenarios to play, or recordings (.ndjson, .ndjson.gz) or files of --outcomes; the first is what the others are compared with. One scenario alone is compared with itself under each --set."`
	changeFlags
	Set          []string    `placeholder:"PATH=VALUE" sep:"none" help:"Also compare the scenario with itself with this field changed, such as 'pools[0].replicas=8'; several fields of one variant are separated by ;. May be repeated."`
	SLO          []string    `name:"slo" placeholder:"ttft=200ms,tpot=30ms" help:"What makes an answer good: the most that its ttft, tpot and e2e may take. Goodput and attainment are told then."`
	Replications int         `short:"r" default:"1" placeholder:"R" help:"Play each with R seeds, and compare run by run: near saturation one run says too little."`
	FailIfWorse  failIfWorse `name:"fail-if-worse" help:"Exit with code 1 where a verdict says worse. With measures behind =, such as --fail-if-worse=ttft.p90,goodput, it reads these."`
	Output       string      `enum:"text,json" default:"text" placeholder:"text|json" help:"text for people, or json."`
}

func (c *compareCmd) Help() string {
	return `All are played in virtual time from the same seed, so that each request is the same in all of them, arrives at
the same time and meets the same chances: what differs is what the scenarios do (common random numbers). Every
difference has an interval that holds the true one 95 times in 100, or it says why there is none. The verdict,
the first line, reads a few measures: goodput and attainment where something says what a good answer is, else
ttft p90, tpot mean, e2e p90, requests/s and completed, or those of --fail-if-worse=…; it says better or worse
in no more than 5 of 100 comparisons that differ by chance alone. docs/decide.md says how.

Exit codes: 0 they were compared; 1 with --fail-if-worse where a verdict says worse; 2 the command line is
wrong, or names a measure that the runs lack; 3 a file is wrong.

Examples:
  windtunnel compare today.yaml tomorrow.yaml
  windtunnel compare mine.yaml --set 'pools[0].replicas=8' --set 'pools[0].replicas=8;workload.rate=40'
  windtunnel compare mine.yaml --set 'pools[0].flow=held' -n 20000 --slo ttft=200ms,tpot=30ms
  windtunnel compare mine.yaml other.yaml --replications 10        # near saturation
  windtunnel sim mine.yaml --outcomes today.outcomes               # 40 bytes for each request
  windtunnel compare today.outcomes tomorrow.yaml                  # and a run of then with a scenario
  windtunnel compare monday.ndjson.gz tuesday.ndjson.gz            # two recordings
  windtunnel compare main.yaml branch.yaml --fail-if-worse || echo "the change made it worse"
  windtunnel compare main.yaml branch.yaml --fail-if-worse=ttft.p90,e2e.p90`
}

func (c *compareCmd) Run(o *outside) error {
	ctx, stop := o.Context()
	defer stop()
	out, err := player(o).Compare(ctx, search.CompareOptions{Files: c.Files, Stdin: o.Stdin,
		Overrides: c.overrides(), Set: c.Set, SLO: c.SLO, Replications: c.Replications,
		Measures: c.FailIfWorse.Measures, Note: func(text string) { note(o, text) }})
	if err != nil {
		return err
	}
	if c.Output == "json" {
		err = writeJSON(o.Stdout, out)
	} else {
		err = out.Write(o.Out(), terminal.Paint(o.Color()), o.Columns)
	}
	if err == nil && c.FailIfWorse.Given {
		err = out.FailIfWorse()
	}
	return err
}

// failIfWorse is a flag that stands alone or has a value behind =, never one behind a space: that is the
// next scenario.
type failIfWorse struct {
	Given    bool
	Measures []string
}

// IsBool has the flag stand alone.
func (*failIfWorse) IsBool() bool { return true }

// Decode reads the flag.
func (f *failIfWorse) Decode(ctx *kong.DecodeContext) error {
	f.Given = true
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		f.Measures = append(f.Measures, strings.Split(ctx.Scan.Pop().String(), ",")...)
	}
	return nil
}
