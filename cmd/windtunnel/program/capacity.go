package program

import (
	"cmp"
	"time"

	"github.com/windtunnel/windtunnel/internal/search"
)

type capacityCmd struct {
	loadFlags
	setFlag
	Objectives []string `name:"objective" placeholder:"ttft.p99=200ms" help:"What must hold, such as tpot.p90=30ms or completed=99.9%. Repeatable."`
	Find       string   `enum:"rate,replicas,ratio" default:"rate" help:"What to look for."`
	Pool       string   `placeholder:"NAME" help:"The pool whose servers --find replicas and --find ratio count."`

	Duration     time.Duration `default:"30s" placeholder:"30s" help:"Least length of each run, in virtual time."`
	Precision    float64       `default:"5" placeholder:"PERCENT" help:"How close the highest kept and lowest missed rate get."`
	Replications int           `short:"r" default:"12" placeholder:"R" help:"How many runs decide about a load."`
	MaxReplicas  int           `default:"256" placeholder:"N" help:"The most model servers that --find replicas tries."`
	Results      string        `placeholder:"DIR" help:"Keep each run in DIR; runs in DIR are not played again."`
	divideFlags
	textOrJSON
}

func (c *capacityCmd) Help() string {
	return `Plays the scenario in virtual time at many loads, until it knows which of them meet the objectives.

--find rate       the highest rate that meets the objectives
--find replicas   the fewest model servers (decode servers, where there are prefill servers) for the
                  scenario's rate
--find ratio      the best ratio of prefill to decode servers, of as many servers as the scenario has

An objective is a latency (ttft, tpot or e2e at mean, p50, p90, p95 or p99) and its upper limit, or a
share and its lower limit: completed=99.9%, or attainment=95%, the requests that meet all bounds of the
scenario's own slo.

Short pilot runs estimate the answer and how long runs have to be. Fresh runs with other seeds then decide.
At most 1 of 20 searches reports a load that is too high. A trace is played faster or slower for a rate.
docs/decide.md has the rule.

Examples:
  windtunnel capacity mine.yaml --objective ttft.p99=200ms --objective tpot.p90=30ms
  windtunnel capacity mine.yaml --objective ttft.p95=1s --find replicas --rate 40
  windtunnel capacity examples/pd.yaml --objective ttft.p90=300ms --objective tpot.mean=20ms --find ratio
  windtunnel capacity mine.yaml --objective ttft.p99=200ms --results shared --share 0/2    # one of two processes
  windtunnel capacity mine.yaml --objective ttft.p99=200ms --on kubernetes                 # docs/kubernetes-jobs.md`
}

// search returns the search that the flags state.
func (c *capacityCmd) search(o *outside) (search.CapacityOptions, error) {
	v, err := c.variant(o, c.Set)
	return search.CapacityOptions{Variant: v, Objectives: c.Objectives, Find: search.Find(c.Find), Pool: c.Pool,
		Duration: c.Duration, Precision: c.Precision, Replications: c.Replications, MaxReplicas: c.MaxReplicas,
		Division: c.division(c.Results)}, err
}

func (c *capacityCmd) Run(o *outside) error {
	question, err := c.search(o)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	p := player(o)
	end := c.watch(o, p)
	out, err := p.Capacity(ctx, question)
	end()
	if out == nil || c.Share.Of > 0 {
		return err
	}
	if err := cmp.Or(c.verdict(o, out, out.Found() == nil, out.Write, " misses: "), err); err != nil {
		return err
	}
	return out.Found()
}
