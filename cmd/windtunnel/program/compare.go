package program

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/comparison"
	"github.com/windtunnel/windtunnel/report/outcomes"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
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

// Bounds of what is played.
const maxReplications, maxVariants = 1000, 64

func (c *compareCmd) Run(o *outside) error {
	slo, err := report.ParseSLO(c.SLO)
	reads, unknown := comparison.Named(c.FailIfWorse.Measures)
	switch {
	case err != nil:
		return exit.With(exit.Usage, fmt.Errorf("--slo: %w", err))
	case unknown != nil:
		return exit.With(exit.Usage, fmt.Errorf("--fail-if-worse: %w", unknown))
	case c.Replications < 1 || c.Replications > maxReplications:
		return exit.With(exit.Usage,
			fmt.Errorf("--replications: found %d; expected a whole number, from 1 to %d", c.Replications,
				maxReplications))
	case len(c.Files)+len(c.Set) < 2:
		return exit.Hint(exit.Usage,
			errors.New("there is only one to compare; expected two or more scenarios or recordings, or one and --set"),
			"Try: windtunnel compare --help")
	case len(c.Files)+len(c.Set) > maxVariants:
		return exit.With(exit.Usage,
			fmt.Errorf("found %d to compare; expected at most %d", len(c.Files)+len(c.Set), maxVariants))
	}
	names, plays, err := c.plays(o)
	if err != nil {
		return err
	}
	runs := make([]report.Runs, len(plays))
	sides := make([]comparison.Side, len(plays))
	ctx, stop := playing(o)
	defer stop()
	for i := range runs {
		runs[i] = make(report.Runs, c.Replications)
		sides[i] = comparison.Side{Name: names[i]}
	}
	if err := each(len(plays)*c.Replications, func(n int) error {
		i, r := n/c.Replications, n%c.Replications
		x, err := plays[i](ctx, r)
		if err != nil {
			return err
		}
		runs[i][r] = x.sample
		if r == 0 {
			sides[i].Seed = x.seed
		}
		return nil
	}); err != nil {
		return err
	}
	out := comparison.Of(sides, runs, slo, reads)
	out.SLO = strings.Join(c.SLO, ",")
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

// plays are what to compare: how each comes to its result, for each replication.
func (c *compareCmd) plays(o *outside) (names []string, plays []player, err error) {
	for _, file := range c.Files {
		ended := outcomes.Is(file)
		if ended || isRecording(file) {
			if c.Replications > 1 || len(c.Set) > 0 {
				return nil, nil, exit.With(exit.Usage,
					fmt.Errorf("%s is a recording, of one run as it was; --replications and --set are for scenarios",
						file))
			}
			play := playerOf(file)
			if ended {
				play = func(context.Context, int) (*result, error) { return readOutcomes(file) }
			}
			names, plays = append(names, file), append(plays, play)
			continue
		}
		v, err := readVariant(o, file, &c.changeFlags)
		if err != nil {
			return nil, nil, err
		}
		variants := []variant{v}
		for _, text := range c.Set {
			settings, err := parseSettings(text)
			if err != nil {
				return nil, nil, err
			}
			variants = append(variants, v.with(settings...))
		}
		for _, v := range variants {
			s, err := v.scenario(0)
			if err != nil {
				return nil, nil, err
			}
			if pace := s.Paced(); pace != "" {
				fmt.Fprintf(o.Stderr, "windtunnel: note: %s: %s\n", v.Name, pace)
			}
			names, plays = append(names, v.Name), append(plays, v.play)
		}
	}
	return names, plays, nil
}

// readOutcomes is what a file of outcomes came to.
func readOutcomes(file string) (*result, error) {
	x := &result{}
	var err error
	x.sample, err = report.SampleOf(func(add func(report.Ended)) error {
		h, err := outcomes.ReadFile(file, func(r outcomes.Request) { add(report.Ended(r)) })
		x.seed = h.Seed
		return err
	})
	if err == nil && len(x.sample.Requests) == 0 {
		err = fmt.Errorf("%s has no request; expected a file that windtunnel run or sim wrote with --outcomes", file)
	}
	return x, exit.With(exit.Input, err)
}

// parseSettings reads path=value;path=value.
func parseSettings(text string) (out []scenario.Setting, err error) {
	for _, part := range strings.Split(text, ";") {
		s, err := scenario.ParseSetting(part)
		if err != nil {
			return nil, exit.With(exit.Usage, fmt.Errorf("--set: %w", err))
		}
		out = append(out, s)
	}
	return out, nil
}
