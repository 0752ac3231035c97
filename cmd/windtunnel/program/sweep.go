package program

import (
	"errors"
	"io"

	"github.com/windtunnel/windtunnel/internal/search"
)

type sweepCmd struct {
	loadFlags
	Vary []string `placeholder:"PATH=A,B,…" sep:"none" help:"A field and its values, such as workload.rate=10,20. Repeatable."`
	sloFlag
	Replications int `short:"r" default:"1" placeholder:"R" help:"Play each combination with R seeds."`

	Results string   `placeholder:"FILE|DIR" help:"Append each point to FILE, or to a file in DIR; points there are not played again."`
	Measure []string `placeholder:"NAME,…" help:"Measures in the table, such as 'ttft p99'. CSV, Parquet and JSON have all."`
	Output  string   `short:"o" enum:"text,json,csv,parquet" default:"text" help:"A table, one JSON object a line, CSV, or Parquet."`
	divideFlags
}

func (c *sweepCmd) Help() string {
	return `Plays a scenario in virtual time once for each combination of values, on all cores. --vary takes any field,
by the path that mistakes are reported with; * stands for every entry of a list. A sweep that was stopped
continues when it is started again with the same --results. A table that is too wide for the terminal has
fewer columns, and names the others. docs/decide.md lists the measures, and which go first.

Examples:
  windtunnel sweep mine.yaml --vary 'pools[0].replicas=2,4,8' --vary workload.rate=10,20,40
  windtunnel sweep mine.yaml --vary workload.rate=10,20,40 --slo ttft=200ms,tpot=30ms --measure attainment,goodput
  windtunnel sweep mine.yaml --vary 'pools[*].modelServer.maxNumSeqs=64,128' --results all.ndjson -o csv > sweep.csv
  windtunnel sweep mine.yaml --vary workload.rate=10,20,40 --results shared --share 0/2   # half of it, here
  windtunnel sweep mine.yaml --vary workload.rate=10,20,40 --results shared --collect     # the table of all shares
  windtunnel sweep mine.yaml --vary workload.rate=10,20,40 --on kubernetes                # docs/kubernetes-jobs.md`
}

// search returns the sweep that the flags state.
func (c *sweepCmd) search(o *outside) (search.Sweep, error) {
	v, err := c.variant(o, nil)
	return search.Sweep{Variant: v, Vary: c.Vary, SLO: c.SLO, Replications: c.Replications, Measures: c.Measure,
		Division: c.division(c.Results), Note: func(text string) { note(o, text) }}, err
}

func (c *sweepCmd) Run(o *outside) error {
	if err := (&shownIn{Output: c.Output}).fits(o); err != nil {
		return err
	}
	question, err := c.search(o)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	p := player(o)
	end := c.watch(o, p)
	out, err := p.Sweep(ctx, question)
	end()
	switch {
	case out == nil || c.Share.Of > 0:
	case c.Output == "text":
		write := func(to io.Writer, columns int) error { return out.Write(to, c.Output, columns) }
		err = errors.Join(err, textOrJSON{}.verdict(o, out, out.Sound(), write, "not steady", "did not complete"))
	default:
		to := o.Stdout
		if c.Output == "parquet" {
			to = o.Bytes()
		}
		err = errors.Join(err, out.Write(to, c.Output, 0))
	}
	return err
}
