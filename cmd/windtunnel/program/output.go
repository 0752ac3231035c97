package program

import (
	"fmt"
	"math"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/table"
	"github.com/windtunnel/windtunnel/scenario"
)

// outputFlags say how a run is shown and recorded.
type outputFlags struct {
	shownIn
	otlpFlags
	viewFlag
	Record   string `placeholder:"FILE" help:"Also write every event to FILE, compressed if it ends in .gz."`
	Explain  int    `default:"32" placeholder:"N" help:"How many endpoints of a decision a recording explains."`
	Outcomes string `placeholder:"FILE" help:"Also write 40 bytes for each request to FILE, for windtunnel compare."`
	Bodies   bool   `name:"record-bodies" help:"Record requests' bodies, and not only what plug-ins compare."`
}

// viewFlag is how much of each request people see.
type viewFlag struct {
	View string `enum:"auto,steps,requests,progress" default:"auto" help:"How much of each request to show. auto chooses by how many there are."`
}

// shownIn is the form in which a run, or the replay of one, is printed.
type shownIn struct {
	Output string `short:"o" enum:"text,json,csv,parquet,inference-perf,llm-d-benchmark" default:"text" help:"text for people; json: one event per line, last the summary (docs/flow.md); csv or parquet: a row for each request; or that tool's report."`
	JUnit  string `name:"junit" placeholder:"FILE" help:"Also write the verdict to FILE as JUnit's XML."`
}

func (f *shownIn) set(r *report.Options) {
	r.JUnit = f.JUnit
	switch f.Output {
	case "text":
	case "json":
		r.JSON = true
	case "csv":
		r.Rows = table.CSV
	case "parquet":
		r.Rows = table.Parquet
	default:
		r.Form = report.Form(f.Output)
	}
}

// fits refuses a form that a terminal cannot show.
func (f *shownIn) fits(o *outside) error {
	if f.Output == "parquet" && o.Terminal {
		return exit.Errorf(exit.Usage, "--output parquet: standard output is a terminal; expected a file: add > "+
			"requests.parquet")
	}
	return nil
}

// options are the report's options for a run of s. clock is the run's for a
// live run and nil in virtual time, where events come in order.
func (f *outputFlags) options(o *outside, s *scenario.Scenario, clock func() machine.Time) report.Options {
	r := report.Options{
		Out: o.Out(), Color: o.Color(), Columns: o.Columns, File: f.Record, Bodies: f.Bodies, Version: version.Text(),
		Clock: clock, Explain: f.Explain, PrefixCache: s.CachesPrefixes(),
		Scenario: s.Name, Seed: s.Seed, Requests: s.Workload.Requests, InFlight: s.Workload.Requests,
		SLO:      report.SLO(s.Workload.SLO),
		Outcomes: f.Outcomes,
		Judge:    func(sum report.Summary) []report.Expectation { return judge(&s.Expectations, sum) },
	}
	f.shownIn.set(&r)
	if s.Workload.Uncounted() {
		r.Requests, r.InFlight = 0, s.Workload.Concurrency
	}
	if f.View != "auto" {
		r.Detail = report.Detail(f.View)
	}
	return r
}

// spares refuses outputs, each a flag and its file, that would overwrite what the run reads.
func spares(inputs []string, outputs ...[2]string) error {
	for _, out := range outputs {
		for _, in := range inputs {
			if out[1] != "" && files.Same(in, out[1]) {
				return exit.Errorf(exit.Usage, "%s %s: this is %s, which the run reads; choose another file", out[0],
					out[1], in)
			}
		}
	}
	return nil
}

// outputs are the files that the run writes, each with its flag.
func (f *outputFlags) outputs() [][2]string {
	return [][2]string{{"--junit", f.JUnit}, {"--outcomes", f.Outcomes}, {"--record", f.Record}}
}

// known refuses expectations of what no summary has, before the run.
func known(e *scenario.Expectations) error {
	for i, f := range e.Figures {
		if _, _, err := new(report.Summary).Figure(f.Path); err != nil {
			return exit.Errorf(exit.Input, "expectations.figures[%d]: found %q: %w", i, f.Name, err)
		}
	}
	return nil
}

// judge holds a scenario's expectations against a summary.
func judge(e *scenario.Expectations, sum report.Summary) []report.Expectation {
	return e.Check(scenario.Measured{Requests: sum.Requests, Outcomes: sum.Outcomes,
		Span: func(span, quantile string) (time.Duration, bool) {
			s, ok := sum.Span(span)
			return time.Duration(math.Round(s.Quantile(quantile) * 1e9)), ok
		},
		Measure: func(name string) (float64, bool) {
			for _, m := range sum.Measures {
				if m.Measure == name {
					return m.Value, true
				}
			}
			return 0, false
		},
		Figure: func(path []string) (float64, bool) {
			v, found, err := sum.Figure(path)
			return v, found && err == nil
		}})
}

// verdict is the exit code of a run that came to its end. A scenario's
// expectations say what is wanted; without any, every request must complete.
func verdict(s report.Summary) error {
	switch {
	case s.Interrupted:
		return exit.Told(exit.Interrupted, fmt.Errorf("interrupted"))
	case s.Wrong() > 0:
		return exit.Errorf(exit.Failed, "%d of %d KV indexes are not the union of the engines' blocks", s.Wrong(),
			len(s.IndexLag))
	case s.Missed() > 0:
		return exit.Errorf(exit.Failed, "%d of %d expectations were missed", s.Missed(), len(s.Expectations))
	case len(s.Expectations) > 0:
		return nil
	case s.Failed() > 0:
		return exit.Errorf(exit.Failed, "%d of %d requests did not complete", s.Failed(), s.Requests)
	}
	return nil
}
