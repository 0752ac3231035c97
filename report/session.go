package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/gaps"
	"github.com/windtunnel/windtunnel/report/hops"
	"github.com/windtunnel/windtunnel/report/order"
	"github.com/windtunnel/windtunnel/report/outcomes"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/report/table"
)

// Options say where the events of a run go.
type Options struct {
	// Out receives the view and the summary, or with JSON the events as lines.
	Out   io.Writer
	JSON  bool
	Color bool
	// Columns of the terminal that Out is, 0 for none. Steps are wrapped there.
	Columns int
	// Detail of the view. If it is empty, Requests decides.
	Detail Detail
	// Requests is how many the run will send, 0 if unknown.
	Requests int
	// InFlight bounds the requests in flight, 0 if unknown. A tally then follows 262,144.
	InFlight int
	// File is where a recording is written, "" for none. Bodies adds the bodies of requests to the log of the endpoint
	// picker's inputs, and Version is windtunnel's.
	File    string
	Bodies  bool
	Version string
	// Scenario and Seed are in the summary.
	Scenario string
	Seed     uint64
	// Clock is the clock of a live run, whose events come from many goroutines and are sorted by time first. Without
	// it, one goroutine records the events in order.
	Clock func() machine.Time
	// PrefixCache says that the model servers keep prefixes of prompts, so the summary also reports that they found
	// none.
	PrefixCache bool
	// SLO is the workload's, empty without one.
	SLO record.SLO
	// Rows, if not nil, makes Out receive a table with a row for each request instead. Form makes it receive another
	// tool's report at the end.
	Rows func(to io.Writer, columns []table.Column) table.Writer
	Form Form
	// JUnit is a file for the verdict as JUnit's XML, "" for none.
	JUnit string
	// OverTime is a file for the run over time as CSV, "" for none.
	OverTime string
	// Gaps is the counter of the gaps between tokens, for engines that start before the session. With nil, the session
	// makes its own.
	Gaps *gaps.Gaps
	// Explain is how many endpoints of a decision a reader of reasons receives, 0 for record.DefaultExplained.
	Explain int
	// Also receives every event after the tally, in the same order. Inputs receives the lines of the log of inputs in
	// addition to the recording. Both may be nil.
	Also   record.Recorder
	Inputs io.Writer
	// Outcomes is where 40 bytes for each request are written, for comparing runs. "" is none.
	Outcomes string
	// Judge compares the scenario's expectations with the summary of a run that was not interrupted. It is nil without
	// expectations.
	Judge func(Summary) []Expectation

	restored         Summary // from a recording: the parts that its events do not have
	servers, prefill []string
}

// Session combines the readers of one run: tally, view, recording. It is the record.Recorder of the run.
type Session struct {
	options  Options
	readers  []record.Recorder // in the order in which they receive events
	tally    *Tally
	view     *View
	lines    *recording.Writer // JSON on Out
	file     *recording.Writer
	outcomes *outcomes.Writer
	files    []outputFile
	junit    *os.File // for the verdict
	overTime *os.File
	ordered  *order.Stream
	hops     *hops.Meter             // of a live run
	printed  bool                    // the summary has been printed already
	settled  *Summary                // of Loaded
	whole    atomic.Pointer[Summary] // once the run's own requests have ended
}

// outputFile is a file that the session writes, with its flag.
type outputFile struct {
	flag string
	io.Closer
}

// Start opens the files and begins to record.
func Start(o Options) (*Session, error) {
	s := &Session{options: o, tally: NewTallyFor(o.InFlight)}
	s.tally.Expect(o.Requests)
	s.tally.series = NewSeries()
	s.tally.series.light, s.tally.series.slo = o.Also == nil, o.SLO
	if o.Gaps != nil {
		s.tally.gaps = o.Gaps
	}
	for _, x := range []struct {
		flag, path string
		create     func() (io.Closer, error)
	}{
		{"--record", o.File, func() (c io.Closer, err error) {
			s.file, err = recording.Create(o.File)
			return s.file, err
		}},
		{"--junit", o.JUnit, func() (c io.Closer, err error) {
			s.junit, err = os.Create(o.JUnit)
			return s.junit, err
		}},
		{"--over-time", o.OverTime, func() (c io.Closer, err error) {
			s.overTime, err = os.Create(o.OverTime)
			return s.overTime, err
		}},
		{"--outcomes", o.Outcomes, func() (c io.Closer, err error) {
			s.outcomes, err = outcomes.Create(o.Outcomes, outcomes.Header{Seed: o.Seed, Scenario: o.Scenario})
			return s.outcomes, err
		}},
	} {
		if x.path == "" {
			continue
		}
		c, err := x.create()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", x.flag, err), s.Abandon())
		}
		s.files = append(s.files, outputFile{x.flag, c})
	}
	if s.outcomes != nil {
		s.tally.each = func(e *Ended) {
			if !e.Judged {
				e.judge(s.options.SLO)
			}
			s.outcomes.Add((*outcomes.Request)(e))
		}
	}
	s.readers = []record.Recorder{s.tally}
	if o.Clock != nil {
		s.hops = hops.NewMeter(maxOpen, idOf)
		s.readers = append(s.readers, s.hops)
	}
	switch {
	case o.JSON:
		s.lines = recording.NewWriter(o.Out)
		s.readers = append(s.readers, s.lines)
	case o.Rows != nil:
		s.tally.rows = newRows(o.Out, o.Rows)
	case o.Form != "":
	default:
		o.Detail = cmp.Or(o.Detail, DetailFor(o.Requests))
		s.view = NewView(o.Out, s.tally, o.Detail, o.Requests, o.Color)
		s.view.width = o.Columns
		s.readers = append(s.readers, s.view)
		if o.Clock != nil {
			s.view.silence = maxSilence
			if o.Color && o.Columns > 0 {
				s.view.status = &status{out: o.Out, columns: o.Columns, requests: o.Requests}
			}
		} else if o.Detail == Quiet && o.Color && o.Columns > 0 {
			s.view.status = &status{out: o.Out, columns: o.Columns, requests: o.Requests, virtual: true}
		}
	}
	if s.file != nil {
		s.readers = append(s.readers, s.file)
	}
	if o.Also != nil {
		s.readers = append(s.readers, o.Also)
	}
	if o.Clock != nil {
		s.ordered = order.New(record.Func(s.take), o.Clock, s.flush)
	}
	return s, nil
}

// Restore takes from a recording's summary the parts that its events do not have.
func (s *Session) Restore(recorded Summary) {
	o := &s.options
	o.restored, o.Scenario, o.Seed, o.SLO, o.PrefixCache = recorded, recorded.Scenario, recorded.Seed,
		recorded.SLO.SLO(),
		recorded.PrefixCache != nil
	o.restored.Measures = slices.DeleteFunc(slices.Clone(recorded.Measures), func(m Measured) bool {
		x, ok := MeasureNamed(m.Measure)
		return !ok || !x.gaps && !x.load
	})
	o.Judge = func(Summary) []Expectation { return recorded.Expectations }
	s.servers(slices.Collect(maps.Keys(recorded.Endpoints)), slices.Collect(maps.Keys(recorded.PrefillServers)))
}

// servers sets the run's servers, those that only prefill separately.
func (s *Session) servers(endpoints, prefill []string) {
	s.options.servers, s.options.prefill = endpoints, prefill
}

// Record takes one event of the run.
func (s *Session) Record(e record.Event) {
	if s.ordered != nil {
		s.ordered.Record(e)
		return
	}
	s.take(e)
}

// Explained implements record.Selective. A recording and JSON lines have the reasons of decisions, a terminal does not.
func (s *Session) Explained() int { return s.options.Explained() }

// Detailed implements record.Selective. A summary and a line per request need only the steps.
func (s *Session) Detailed() bool {
	return s.lines != nil || s.file != nil || s.options.Also != nil || s.view != nil && s.view.detail == Steps
}

// Explained returns how many endpoints of a decision some reader receives.
func (o *Options) Explained() int {
	if !o.JSON && o.File == "" && o.Also == nil {
		return 0
	}
	return cmp.Or(o.Explain, record.DefaultExplained)
}

// Inputs says where the log of the endpoint picker's inputs goes, and what it contains.
type Inputs struct {
	// To receives whole lines, until the Session ends.
	To io.Writer
	// Bodies adds requests' bodies.
	Bodies bool
	// Version is windtunnel's.
	Version string
}

// Inputs returns where a log of inputs goes, nil if there is no reader.
func (s *Session) Inputs() *Inputs {
	x := &Inputs{s.options.Inputs, s.options.Bodies, s.options.Version}
	switch {
	case s.file == nil && x.To == nil:
		return nil
	case x.To == nil:
		x.To = s.file
	case s.file != nil:
		x.To = io.MultiWriter(s.file, x.To)
	}
	return x
}

// Summary returns the summary so far. Values that need a whole run are in it once the run's own requests have ended. It
// is safe for concurrent use.
func (s *Session) Summary() Summary {
	sum, whole := s.tally.Summary(), s.whole.Load()
	if whole == nil {
		return sum
	}
	out := *whole
	out.Duration, out.Requests, out.Unfinished, out.Dropped, out.Outcomes, out.NotCompleted = sum.Duration,
		sum.Requests, sum.Unfinished, sum.Dropped, sum.Outcomes, sum.NotCompleted
	out.Refusals, out.Incidents, out.Hops, out.Spans, out.ByHand = sum.Refusals, sum.Incidents, sum.Hops, sum.Spans,
		sum.ByHand
	out.Transfers, out.Predictions, out.Warnings, out.Classes = sum.Transfers, sum.Predictions, sum.Warnings,
		sum.Classes
	return out
}

// Series returns the run over time. Without Options.Also, it has counts alone.
func (s *Session) Series() *Series { return s.tally.series }

// Show updates the status line of a run in virtual time on a terminal, where the view prints nothing else. wall is how
// long the run has taken.
func (s *Session) Show(wall time.Duration) {
	if s.view != nil && s.view.err == nil && s.options.Clock == nil {
		s.view.err = s.view.status.show(machine.FromDuration(wall), s.tally)
	}
}

// Request returns the measured spans of a request that is in flight or ended recently, by name, and the model server
// that was picked for it. It is safe for concurrent use.
func (s *Session) Request(id string) (spans map[string]machine.Time, server string) {
	return s.tally.request(id)
}

// Scraped counts how long a live picker took to read a page of metrics.
func (s *Session) Scraped(took time.Duration) { s.hops.Scraped(took) }

func (s *Session) take(e record.Event) {
	for _, r := range s.readers {
		r.Record(e)
	}
}

// flush makes our lines visible to a reader of a pipe. The writer keeps an error, which End returns.
func (s *Session) flush() {
	if s.lines != nil {
		_ = s.lines.Flush()
	}
	if s.view != nil && s.view.err == nil {
		s.view.err = s.view.status.show(s.options.Clock(), s.tally)
	}
}

// Began reports whether there was any event.
func (s *Session) Began() bool {
	sent, _ := s.tally.Counts()
	return sent > 0
}

// Abandon closes the files of a run that never began, without a summary.
func (s *Session) Abandon() (err error) {
	for _, f := range s.files {
		if failed := f.Close(); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f.flag, failed))
		}
	}
	return err
}

// summary returns the summary of the run so far.
func (s *Session) summary(interrupted bool, x *Sample) Summary {
	sum := s.tally.Summary()
	sum.Endpoints, sum.PrefillServers = withZeros(sum.Endpoints, s.options.servers),
		withZeros(sum.PrefillServers, s.options.prefill)
	if sum.PrefixCache != nil && sum.PrefixCache.CachedTokens == 0 && !s.options.PrefixCache {
		sum.PrefixCache = nil
	}
	slo := s.options.SLO
	if judged(x.Requests) { // each by its class's
		slo = record.SLO{}
	}
	sum.Measures, sum.WarmUp = (Runs{x}).Under(slo).All(), Digits(x.Cut.Seconds())
	recorded := &s.options.restored
	if len(recorded.Measures) > 0 {
		sum.Measures = inOrder(append(sum.Measures, recorded.Measures...))
	}
	sum.Scenario, sum.Seed, sum.Interrupted, sum.IndexLag, sum.SLO = s.options.Scenario, s.options.Seed, interrupted,
		recorded.IndexLag, s.options.SLO.Summary()
	if recorded.Load != nil {
		sum.Load = recorded.Load
	}
	if recorded.Pools != nil {
		sum.Pools = recorded.Pools
	}
	if recorded.Servers != nil {
		sum.Servers, sum.Cost = recorded.Servers, recorded.Cost
	}
	sum.OverTime, sum.MissedSLO = recorded.OverTime, recorded.MissedSLO
	if recorded.Requests == 0 {
		sum.MissedSLO = s.tally.series.misses()
	}
	if o := s.tally.series.overTime(sum.Servers); recorded.Requests == 0 &&
		(o.Changes() || slices.ContainsFunc(sum.Servers, func(x ServersSummary) bool { return x.Least < x.Most })) {
		sum.OverTime = o
	}
	if s.options.Judge != nil && !interrupted {
		sum.Expectations = s.options.Judge(sum)
	}
	return sum
}

// inOrder sorts measures into the order of Measures.
func inOrder(list []Measured) []Measured {
	place := map[string]int{}
	for i, m := range Measures() {
		place[m.Name] = i
	}
	machine.SortStableFunc(list, func(a, b Measured) int { return cmp.Compare(place[a.Measure], place[b.Measure]) })
	return list
}

// Gaps returns the counter of the gaps between tokens, for engines.
func (s *Session) Gaps() *gaps.Gaps { return s.tally.Gaps() }

// SetLoads sets how busy the model servers were. Call it before the summary.
func (s *Session) SetLoads(list []ServerLoad) { s.tally.SetLoads(list) }

func withZeros(counts map[string]int, names []string) map[string]int {
	for _, name := range names {
		if counts == nil {
			counts = map[string]int{}
		}
		counts[name] += 0
	}
	return counts
}

// Loaded prints the summary once the run's own requests have ended. The session then still records requests that a user
// sends by hand. Loaded waits until settled returns true, at most maxSettling, since events may still be on their way.
func (s *Session) Loaded(settled func(Summary) bool) error {
	for until := time.Now().Add(maxSettling); s.ordered != nil && !settled(s.tally.Summary()) &&
		time.Now().Before(until); {
		time.Sleep(order.Window)
	}
	var failed error
	summarize := func() {
		sum := s.summary(false, s.tally.Sample())
		s.settled = &sum
		s.whole.Store(&sum)
		if s.view != nil {
			s.printed = true
			failed = s.print(sum)
		}
	}
	if s.ordered == nil {
		summarize()
	} else {
		s.ordered.Drain(summarize) // the view belongs to the stream's goroutine
	}
	return failed
}

// Settled returns the summary of the run's own requests, nil before Loaded.
func (s *Session) Settled() *Summary { return s.settled }

// maxSettling bounds how long Loaded waits for events.
const maxSettling = time.Second

// print prints a summary for people, after an empty line.
func (s *Session) print(sum Summary) error {
	if err := s.view.Err(); err != nil {
		return err
	}
	if err := s.view.status.end(); err != nil {
		return err
	}
	gap := "\n"
	if s.view.blank {
		gap = ""
	}
	if _, err := io.WriteString(s.options.Out, gap); err != nil {
		return err
	}
	return sum.Write(s.options.Out, s.options.Color, s.options.Columns)
}

// End prints the summary, closes the files and returns the summary. It must be the last call.
func (s *Session) End(interrupted bool) (Summary, error) {
	if s.ordered != nil {
		s.ordered.Close()
	}
	sum := s.summary(interrupted, s.tally.lastSample())
	sum.HopTimes = s.options.restored.HopTimes
	if s.hops != nil {
		sum.HopTimes = s.hops.Times()
	}
	s.whole.Store(&sum)
	var errs []error
	switch {
	case s.view == nil:
	case !s.printed:
		errs = append(errs, s.print(sum))
	default:
		errs = append(errs, s.view.Err(), sum.ByHand.print(s.options))
	}
	if s.lines != nil {
		s.lines.Summary(sum)
		errs = append(errs, s.lines.Close())
	}
	if s.tally.rows != nil {
		errs = append(errs, s.tally.rows.Close())
	}
	if s.options.Form != "" {
		errs = append(errs, metricsOf(sum, s.tally.ended.list, int(max(s.tally.ended.stride, 1)), s.tally.gaps,
			s.tally.whyNot()).write(s.options.Out, s.options.Form))
	}
	if s.junit != nil {
		if err := sum.WriteJUnit(s.junit); err != nil {
			errs = append(errs, fmt.Errorf("--junit: %w", err))
		}
	}
	if s.overTime != nil {
		if err := s.tally.series.overTime(sum.Servers).WriteCSV(s.overTime); err != nil {
			errs = append(errs, fmt.Errorf("--over-time: %w", err))
		}
	}
	if s.file != nil {
		s.file.Summary(sum)
	}
	return sum, errors.Join(append(errs, s.Abandon())...)
}
