package program

import (
	"errors"

	"github.com/windtunnel/windtunnel/internal/search"
)

type sweepCmd struct {
	loadFlags
	Set          []string `placeholder:"PATH=A,B,…" sep:"none" help:"A field of the scenario and the values that it takes, such as 'pools[0].replicas=2,4,8'. With several of them, every combination is played."`
	SLO          []string `name:"slo" placeholder:"ttft=200ms,tpot=30ms" help:"What makes an answer good: the most that its ttft, tpot and e2e may take. Goodput and attainment are told then."`
	Replications int      `short:"r" default:"1" placeholder:"R" help:"Play each with R seeds."`
	Results      string   `placeholder:"FILE" help:"Write each point to FILE as soon as it is played, one JSON object a line. Points that are there already are not played again, so that a sweep can be stopped and gone on with."`
	Measure      []string `placeholder:"NAME,…" help:"The measures that the table has, such as 'ttft p99' (docs/decide.md). CSV and JSON have all."`
	Output       string   `enum:"text,json,csv" default:"text" placeholder:"text|json|csv" help:"A table for people, one JSON object a line, or CSV."`
}

func (c *sweepCmd) Help() string {
	return `Plays a scenario in virtual time once for each combination of values, on all cores. Any field can be swept; a path is the one by which mistakes are told, with * for every entry of a list.

Examples:
  windtunnel sweep mine.yaml --set 'pools[0].replicas=2,4,8' --set workload.rate=10,20,40
  windtunnel sweep mine.yaml --set workload.rate=10,20,40 --slo ttft=200ms,tpot=30ms --measure attainment,goodput
  windtunnel sweep mine.yaml --set 'pools[*].modelServer.maxNumSeqs=64,128,256' --results sweep.ndjson --output csv > sweep.csv`
}

func (c *sweepCmd) Run(o *outside) error {
	v, err := c.variant(o, c.File, nil)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	out, err := player(o).Sweep(ctx, search.Sweep{Variant: v, Set: c.Set, SLO: c.SLO, Replications: c.Replications,
		Results: c.Results, Measures: c.Measure, Note: func(text string) { note(o, text) }})
	if out != nil {
		err = errors.Join(err, out.Write(o.Stdout, c.Output))
	}
	return err
}
