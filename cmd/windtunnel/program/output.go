package program

import (
	"fmt"
	"strings"

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

// viewFlag is how much of each request is printed.
type viewFlag struct {
	View string `enum:"auto,summary,lines,requests,steps,progress" default:"auto" help:"What to show before the summary: nothing, a line for each request (lines or requests), each step, or counts. auto chooses by how many requests there are; sim shows nothing."`
}

// detail returns the detail for a report, "" for auto.
func (f *viewFlag) detail() report.Detail {
	if f.View == "requests" { // the former name
		return report.Lines
	}
	return report.Detail(strings.TrimPrefix(f.View, "auto"))
}

// shownIn is the format in which a run, or the replay of a run, is printed.
type shownIn struct {
	Output string `short:"o" enum:"text,json,csv,parquet,inference-perf,llm-d-benchmark" default:"text" help:"text for people; json: one event per line, last the summary (docs/flow.md); csv or parquet: a row for each request; or that tool's report."`
	JUnit  string `name:"junit" placeholder:"FILE" help:"Also write the verdict to FILE as JUnit's XML."`

	OverTime string `placeholder:"FILE" help:"Also write requests sent, ended, good and refused, and servers ready, over time to FILE as CSV."`
}

func (f *shownIn) set(o *outside, r *report.Options) {
	r.JUnit, r.OverTime = f.JUnit, f.OverTime
	switch f.Output {
	case "text":
	case "json":
		r.JSON = true
	case "csv":
		r.Rows = table.CSV
	case "parquet":
		r.Rows, r.Out = table.Parquet, o.Bytes()
	default:
		r.Form = report.Form(f.Output)
	}
}

// fits returns an error for a format that a terminal cannot show.
func (f *shownIn) fits(o *outside) error {
	if f.Output == "parquet" && o.Terminal {
		return exit.Errorf(exit.Usage, "--output parquet: standard output is a terminal; expected a file: add > "+
			"requests.parquet")
	}
	return nil
}

// options returns the report's options for a run of s. clock is nil in virtual time, where events come in order.
func (f *outputFlags) options(o *outside, s *scenario.Scenario, clock func() machine.Time) report.Options {
	r := report.Options{
		Out: o.Out(), Color: o.Color(), Columns: o.Columns, File: f.Record, Bodies: f.Bodies, Version: version.Text(),
		Clock: clock, Explain: f.Explain, PrefixCache: s.CachesPrefixes(),
		Scenario: s.Name, Seed: s.Seed, Requests: s.Workload.Requests, InFlight: s.Workload.Requests,
		SLO:      s.Workload.SLO,
		Outcomes: f.Outcomes, Detail: f.detail(),
		Judge: report.JudgeBy(s.Expectations.Check),
	}
	f.shownIn.set(o, &r)
	if s.Workload.Uncounted() {
		r.Requests, r.InFlight = 0, s.Workload.Concurrency
	}
	return r
}

// check returns an error, before a run of s, for a format that a terminal cannot show, for an output that would
// overwrite a file that the run reads, and for an expectation of a number that no summary has. more are further
// outputs, each with its flag.
func (f *outputFlags) check(o *outside, s *scenario.Scenario, reads []string, more ...[2]string) error {
	for i, x := range s.Expectations.Figures {
		if _, _, err := new(report.Summary).Figure(x.Path); err != nil {
			return exit.Errorf(exit.Input, "expectations.figures[%d]: found %q: %w", i, x.Name, err)
		}
	}
	if err := f.fits(o); err != nil {
		return err
	}
	for _, out := range append(more, [2]string{"--junit", f.JUnit}, [2]string{"--over-time", f.OverTime},
		[2]string{"--outcomes", f.Outcomes}, [2]string{"--record", f.Record}) {
		for _, in := range reads {
			if out[1] != "" && files.Same(in, out[1]) {
				return exit.Errorf(exit.Usage, "%s %s: this is %s, which the run reads; choose another file", out[0],
					out[1], in)
			}
		}
	}
	return nil
}

// verdict returns the error, with its exit code, of a run that came to its end. A scenario's expectations decide;
// without any, every request must complete.
func verdict(s report.Summary) error {
	switch {
	case s.Interrupted:
		return exit.Reported(exit.Interrupted, fmt.Errorf("interrupted"))
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
