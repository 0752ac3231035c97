package program

import (
	"cmp"
	"time"

	"github.com/windtunnel/windtunnel/internal/search"
)

type capacityCmd struct {
	loadFlags
	Set          []string      `placeholder:"PATH=VALUE" sep:"none" help:"Change a field of the scenario first. May be repeated."`
	SLO          []string      `name:"slo" placeholder:"ttft.p99=200ms" help:"What must hold: a latency (ttft, tpot, e2e) at mean, p50, p90, p95 or p99 and the most that it may be, or the least share: completed=99.9%, or attainment=95% of requests that keep all bounds of the scenario's own slo. May be repeated."`
	Find         string        `enum:"rate,replicas,ratio" default:"rate" placeholder:"rate|replicas|ratio" help:"The highest rate; the fewest model servers (decode servers, where there are prefill servers) for the scenario's rate; or of as many servers as the scenario has the best ratio of prefill to decode servers."`
	Pool         string        `placeholder:"NAME" help:"Of several pools the one whose servers --find replicas and ratio count; the others stay as they are."`
	Duration     time.Duration `default:"30s" placeholder:"30s" help:"How long each run lasts at least, in virtual time. Runs that differ much from one another are made longer."`
	Precision    float64       `default:"5" placeholder:"PERCENT" help:"How near to each other the highest rate that keeps and the lowest that does not are."`
	Replications int           `short:"r" default:"12" placeholder:"R" help:"How many runs decide about a load, each with a seed of its own."`
	MaxReplicas  int           `name:"max-replicas" default:"256" placeholder:"N" help:"How many model servers --find replicas tries at most."`
	Output       string        `enum:"text,json" default:"text" placeholder:"text|json" help:"text for people, or json."`
}

func (c *capacityCmd) Help() string {
	return `Plays the scenario in virtual time at many loads. Short pilot runs find about where the answer is and how long runs have to be; fresh runs with other seeds then decide, the same ones at each load. A load keeps the objectives where the upper limit of each is within its bound and requests surely do not wait longer and longer; what is said to be kept is too much in at most 1 of 20 searches. A trace is played faster or slower for a rate. docs/decide.md says more.

Examples:
  windtunnel capacity mine.yaml --slo ttft.p99=200ms --slo tpot.p90=30ms
  windtunnel capacity mine.yaml --slo ttft.p95=1s --find replicas --rate 40
  windtunnel capacity examples/pd.yaml --slo ttft.p90=300ms --slo tpot.mean=20ms --find ratio`
}

func (c *capacityCmd) Run(o *outside) error {
	v, err := c.variant(o, c.File, c.Set)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	out, err := player(o).Capacity(ctx, search.CapacityOptions{Variant: v, SLO: c.SLO, Find: search.Find(c.Find),
		Pool: c.Pool, Duration: c.Duration, Precision: c.Precision, Replications: c.Replications,
		MaxReplicas: c.MaxReplicas})
	if out == nil {
		return err
	}
	write := func() error { return out.Write(o.Stdout, o.Columns) }
	if c.Output == "json" {
		write = func() error { return writeJSON(o.Stdout, out) }
	}
	if err := cmp.Or(write(), err); err != nil {
		return err
	}
	return out.Found()
}
