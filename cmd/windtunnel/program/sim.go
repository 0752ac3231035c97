package program

import (
	"cmp"
	"errors"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/gc"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
	"github.com/windtunnel/windtunnel/web"
)

type simCmd struct {
	loadFlags
	outputFlags
	pageFlags
	setFlag
	SaveModel  string `placeholder:"FILE" help:"Write the latency predictor's trained models to FILE."`
	NoHops     bool   `help:"Ignore the scenario's hops: no time passes from part to part."`
	StepByStep bool   `help:"Play every engine step by itself: slower, with the same record."`
	Bytes      bool   `help:"Produce the bytes of requests and answers, as run does: slower, with the same record."`
}

func (c *simCmd) Help() string {
	return `Decides with the same parts as windtunnel run. But time is only counted and nothing is sent: minutes pass in
milliseconds. The record has the same steps.

Examples:
  windtunnel sim                                      # the embedded scenario
  windtunnel sim examples/held.yaml                   # 100 ms to 30 s of prefill each
  windtunnel sim mine.yaml --view lines               # a line for each request, too
  windtunnel sim examples/autoscaling.yaml --over-time course.csv
  windtunnel sim -n 100000 -c 500 --replicas 50 --prefill 'lognormal(200ms, 100ms)'
  windtunnel sim --ui                                 # play it on a page, at any speed
  windtunnel sim mine.yaml --set pools[0].modelServer.interTokenLatency=5ms --set workload.maxTokens=16
  windtunnel sim mine.yaml --no-hops                  # the time of servers alone, without networks and Envoy
  windtunnel sim mine.yaml --output json | tail -n 1  # the summary alone
  windtunnel sim mine.yaml --output csv > mine.csv    # a row for each request; or --output parquet
  windtunnel sim mine.yaml --output llm-d-benchmark   # a report in that tool's form
  windtunnel sim examples/ci.yaml --junit verdict.xml # for a pipeline's test reporter`
}

func (c *simCmd) Run(o *outside) error {
	s, err := c.scenarioWith(o, c.Set)
	if err != nil {
		return err
	}
	if err := c.check(o, s, c.inputs(s)); err != nil {
		return err
	}
	if c.NoHops {
		s.Hops = scenario.Hops{}
	}
	options := c.options(o, s, nil)
	page, err := c.pageFlags.start(&options,
		web.Meta{Mode: "sim", File: c.file(), BBR: len(s.Pools) > 1, Pools: pagePools(s, search.Virtual(s))})
	if err != nil {
		return err
	}
	defer page.stop()
	page.printLink(o.Stderr)
	sender, err := c.send(o, time.Now(), false, &options)
	if err != nil {
		return err
	}
	defer sender.End(o)
	return sim(o, s, options, virtual.Options{Bytes: c.Bytes, StepByStep: c.StepByStep}, c.SaveModel, page)
}

// sim plays a scenario in virtual time, and writes the models that its latency predictor trained to a file, if there is
// one. A page stays until an interruption.
func sim(o *outside, s *scenario.Scenario, options report.Options, how virtual.Options, model string,
	page *shownPage) error {
	gc.Play()
	defer gc.Serve()
	began := time.Now()
	options.Detail = cmp.Or(options.Detail, report.Quiet)
	session, err := report.Start(options)
	if err != nil {
		return exit.With(exit.Input, err)
	}
	ctx, stop := o.Context()
	defer stop()
	page.measure(session)
	session.Pools(search.Pools(s, search.Virtual(s)))
	var trained predictor.Status
	fit, end := fitter(ctx, o, s)
	defer end()
	how.Gaps, how.Served, how.Progress = session.Gaps(), session.SetLoads, func(int) bool {
		session.Show(time.Since(began))
		return ctx.Err() == nil
	}
	how.Fit, how.Trained = fitVirtually(ctx, fit), func(st predictor.Status) { trained = st }
	indexes, err := virtual.Play(s, session, how)
	session.SetIndexes(indexes)
	if err != nil && !session.Began() {
		return errors.Join(exit.With(exit.Input, err), session.Abandon())
	}
	summary, endErr := session.End(ctx.Err() != nil)
	switch {
	case err != nil:
		return exit.With(exit.Input, err)
	case endErr != nil:
		return endErr
	}
	if model != "" {
		if err := saveModel(model, trained.Models); err != nil {
			return err
		}
	}
	if page != nil {
		page.end()
		page.played(ctx, page.inputs.Each)
	}
	page.stay(ctx, o)
	return verdict(summary)
}
