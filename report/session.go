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
	// Out gets the view and the summary, or with JSON the events as lines.
	Out   io.Writer
	JSON  bool
	Color bool
	// Columns of the terminal that Out is, 0 for none: steps are wrapped there.
	Columns int
	// Detail of the view; empty chooses by Requests.
	Detail Detail
	// Requests is how many there will be, 0 where nobody knows.
	Requests int
	// InFlight is how many requests may be in flight at once, 0 where nobody
	// knows: a tally then follows 262,144.
	InFlight int
	// File is where a recording is written, "" for none; Bodies adds the bodies of
	// requests to what it says of the endpoint picker, and Version windtunnel's.
	File    string
	Bodies  bool
	Version string
	// Scenario and Seed are told in the summary.
	Scenario string
	Seed     uint64
	// Clock is the run's, for live runs, whose events come from many
	// goroutines: they are put in order first. Without it events are taken as
	// they come, from one goroutine.
	Clock func() machine.Time
	// PrefixCache says that the model servers keep prefixes of prompts, so that it
	// is worth telling where they found none.
	PrefixCache bool
	// SLO is what makes an answer good; nothing where the scenario does not say.
	SLO SLO
	// Rows, if not nil, has Out get a table with a row for each request instead, and Form
	// a report in the form of another tool in the end.
	Rows func(to io.Writer, columns []table.Column) table.Writer
	Form Form
	// JUnit is a file for the verdict as JUnit's XML, "" for none.
	JUnit string
	// Gaps count those between tokens, where engines begin to tell before the session
	// does; nil makes its own.
	Gaps *gaps.Gaps
	// Explain is how many endpoints of a decision are explained to those who
	// read the reasons; 0 is record.DefaultExplained.
	Explain int
	// Also takes every event, too, after the tally and in the same order; may be
	// nil. Inputs takes the lines of the log of inputs, besides the recording.
	Also   record.Recorder
	Inputs io.Writer
	// Outcomes is where 32 bytes for each request are written, for comparing runs; "" for none.
	Outcomes string
	// Judge holds the scenario's expectations against the summary of a run
	// that was not interrupted; nil where nothing is expected.
	Judge func(Summary) []Expectation

	told             Summary // by a recording: what its events do not tell
	servers, prefill []string
}

// Session is the readers of one run put together: tally, view, recording. It
// is the record.Recorder to give to the run.
type Session struct {
	options  Options
	tally    *Tally
	view     *View
	lines    *recording.Writer // JSON on Out
	file     *recording.Writer
	outcomes *outcomes.Writer
	junit    *os.File // for the verdict
	ordered  *order.Stream
	hops     *hops.Meter             // of a live run
	told     bool                    // the summary was printed before the end
	settled  *Summary                // of Loaded
	whole    atomic.Pointer[Summary] // once the run's own requests have ended
}

// Start opens the recording and begins to listen.
func Start(o Options) (*Session, error) {
	s := &Session{options: o, tally: NewTallyFor(o.InFlight)}
	s.tally.Expect(o.Requests)
	if o.Also != nil {
		s.tally.series = NewSeries()
	}
	if o.Gaps != nil {
		s.tally.gaps = o.Gaps
	}
	if o.File != "" {
		var err error
		if s.file, err = recording.Create(o.File); err != nil {
			return nil, fmt.Errorf("--record: %w", err)
		}
	}
	if o.JUnit != "" {
		var err error
		if s.junit, err = os.Create(o.JUnit); err != nil {
			return nil, errors.Join(fmt.Errorf("--junit: %w", err), s.Abandon())
		}
	}
	if o.Outcomes != "" {
		var err error
		if s.outcomes, err = outcomes.Create(o.Outcomes,
			outcomes.Header{Seed: o.Seed, Scenario: o.Scenario}); err != nil {
			return nil, errors.Join(fmt.Errorf("--outcomes: %w", err), s.Abandon())
		}
		s.tally.each = func(e *Ended) {
			if !e.Judged {
				e.judge(s.options.SLO)
			}
			s.outcomes.Add((*outcomes.Request)(e))
		}
	}
	switch {
	case o.JSON:
		s.lines = recording.NewWriter(o.Out)
	case o.Rows != nil:
		s.tally.rows = newRows(o.Out, o.Rows)
	case o.Form != "":
	default:
		if o.Detail == "" {
			o.Detail = DetailFor(o.Requests)
		}
		s.view = NewView(o.Out, s.tally, o.Detail, o.Requests, o.Color)
		s.view.width = o.Columns
		if o.Clock != nil {
			s.view.silence = maxSilence
			if o.Color && o.Columns > 0 {
				s.view.status = &status{out: o.Out, columns: o.Columns, requests: o.Requests}
			}
		}
	}
	if o.Clock != nil {
		s.hops = hops.NewMeter(maxOpen, idOf)
		s.ordered = order.New(record.Func(s.take), o.Clock, s.flush)
	}
	return s, nil
}

// Retell takes from a recording's summary what its events do not tell.
func (s *Session) Retell(told Summary) {
	o := &s.options
	o.told, o.Scenario, o.Seed, o.SLO, o.PrefixCache = told, told.Scenario, told.Seed, told.SLO.SLO(),
		told.PrefixCache != nil
	o.told.Measures = slices.DeleteFunc(slices.Clone(told.Measures), func(m Measured) bool {
		x, ok := MeasureNamed(m.Measure)
		return !ok || !x.gaps && !x.load
	})
	o.Judge = func(Summary) []Expectation { return told.Expectations }
	s.servers(slices.Collect(maps.Keys(told.Endpoints)), slices.Collect(maps.Keys(told.PrefillServers)))
}

// servers names the run's servers, those that only prefill apart.
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

// Explained implements record.Selective: a recording and the JSON lines have the
// reasons of decisions, a terminal does not show them.
func (s *Session) Explained() int { return s.options.Explained() }

// Detailed implements record.Selective: a summary, and a line for each request,
// are made of the steps.
func (s *Session) Detailed() bool {
	return s.lines != nil || s.file != nil || s.options.Also != nil || s.view != nil && s.view.detail == Steps
}

// Explained is how many endpoints of a decision somebody reads.
func (o *Options) Explained() int {
	if !o.JSON && o.File == "" && o.Also == nil {
		return 0
	}
	return cmp.Or(o.Explain, record.DefaultExplained)
}

// Inputs is where a log of the endpoint picker's inputs goes, and what of them.
type Inputs struct {
	// To takes whole lines, until the Session ends.
	To io.Writer
	// Bodies adds requests' bodies.
	Bodies bool
	// Version is windtunnel's.
	Version string
}

// Inputs is where a log of inputs goes; nil where nobody keeps one.
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

// Summary is what the run came to until now; what takes a whole run to measure is in it
// once the run's own requests have ended. It may be asked from any goroutine.
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

// Series is the run over time; nil without Options.Also.
func (s *Session) Series() *Series { return s.tally.series }

// Request is what was measured of a request that is in flight or ended lately:
// its spans by name, and the model server that was picked for it. It may be
// asked from any goroutine.
func (s *Session) Request(id string) (spans map[string]machine.Time, server string) {
	return s.tally.request(id)
}

// Scraped is told how long a live picker took to read a page of metrics.
func (s *Session) Scraped(took time.Duration) { s.hops.Scraped(took) }

func (s *Session) take(e record.Event) {
	s.tally.Record(e)
	if s.hops != nil {
		s.hops.Record(e)
	}
	if s.view != nil {
		s.view.Record(e)
	}
	if s.lines != nil {
		s.lines.Record(e)
	}
	if s.file != nil {
		s.file.Record(e)
	}
	if s.options.Also != nil {
		s.options.Also.Record(e)
	}
}

// flush lets somebody who reads our lines from a pipe see them as they happen.
// A failure is kept by the writer and told by End.
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

// Abandon closes the recording of a run that never began, without a summary.
func (s *Session) Abandon() error {
	err := s.closeOutcomes()
	if s.junit != nil {
		err = errors.Join(err, s.junit.Close())
	}
	if s.file == nil {
		return err
	}
	return errors.Join(s.file.Close(), err)
}

func (s *Session) closeOutcomes() error {
	if s.outcomes == nil {
		return nil
	}
	if err := s.outcomes.Close(); err != nil {
		return fmt.Errorf("--outcomes: %w", err)
	}
	return nil
}

// summary is what the run came to until now.
func (s *Session) summary(interrupted bool, x *Sample) Summary {
	sum := s.tally.Summary()
	sum.Endpoints, sum.PrefillServers = withZeros(sum.Endpoints, s.options.servers),
		withZeros(sum.PrefillServers, s.options.prefill)
	if sum.PrefixCache != nil && sum.PrefixCache.CachedTokens == 0 && !s.options.PrefixCache {
		sum.PrefixCache = nil
	}
	slo := s.options.SLO
	if judged(x.Requests) { // each by its class's
		slo = SLO{}
	}
	sum.Measures, sum.WarmUp = (Runs{x}).Under(slo).All(), Digits(x.Cut.Seconds())
	told := &s.options.told
	if len(told.Measures) > 0 {
		sum.Measures = inOrder(append(sum.Measures, told.Measures...))
	}
	sum.Scenario, sum.Seed, sum.Interrupted, sum.IndexLag, sum.SLO = s.options.Scenario, s.options.Seed, interrupted,
		told.IndexLag, s.options.SLO.told()
	if told.Load != nil {
		sum.Load = told.Load
	}
	if told.Pools != nil {
		sum.Pools = told.Pools
	}
	if told.Servers != nil {
		sum.Servers, sum.Cost = told.Servers, told.Cost
	}
	if s.options.Judge != nil && !interrupted {
		sum.Expectations = s.options.Judge(sum)
	}
	return sum
}

// writeJUnit ends the verdict's file, if there is one.
func (s *Session) writeJUnit(sum Summary) error {
	if s.junit == nil {
		return nil
	}
	if err := errors.Join(sum.WriteJUnit(s.junit), s.junit.Close()); err != nil {
		return fmt.Errorf("--junit: %w", err)
	}
	return nil
}

// inOrder puts measures into the order in which they are told.
func inOrder(list []Measured) []Measured {
	place := map[string]int{}
	for i, m := range Measures() {
		place[m.Name] = i
	}
	slices.SortStableFunc(list, func(a, b Measured) int { return cmp.Compare(place[a.Measure], place[b.Measure]) })
	return list
}

// Gaps is what counts the gaps between tokens, for engines to tell.
func (s *Session) Gaps() *gaps.Gaps { return s.tally.Gaps() }

// Served is told how full the model servers were: before the summary.
func (s *Session) Served(list []ServerLoad) { s.tally.Loaded(list) }

func withZeros(counts map[string]int, names []string) map[string]int {
	for _, name := range names {
		if counts == nil {
			counts = map[string]int{}
		}
		counts[name] += 0
	}
	return counts
}

// Loaded prints the summary once the run's own requests have ended, while the
// session goes on for those that somebody sends by hand. settled is asked until
// it is true: events may still be on their way.
func (s *Session) Loaded(settled func(Summary) bool) error {
	for until := time.Now().Add(maxSettling); s.ordered != nil && !settled(s.tally.Summary()) &&
		time.Now().Before(until); {
		time.Sleep(order.Window)
	}
	if s.ordered != nil {
		s.ordered.Drain()
	}
	sum := s.summary(false, s.tally.Sample())
	s.settled = &sum
	s.whole.Store(&sum)
	if s.view == nil {
		return nil
	}
	s.told = true
	return s.print(sum)
}

// Settled is what the run's own requests came to, whatever came after them; nil before
// Loaded.
func (s *Session) Settled() *Summary { return s.settled }

// maxSettling is how long Loaded waits for events.
const maxSettling = time.Second

// print shows a summary for people, apart from the requests before it.
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

// End prints the summary, closes the recording and returns the summary. No
// event may be recorded after it. An interrupted run is told as such.
func (s *Session) End(interrupted bool) (Summary, error) {
	if s.ordered != nil {
		s.ordered.Close()
	}
	sum := s.summary(interrupted, s.tally.lastSample())
	sum.HopTimes = s.options.told.HopTimes
	if s.hops != nil {
		sum.HopTimes = s.hops.Times()
	}
	s.whole.Store(&sum)
	var errs []error
	switch {
	case s.view == nil:
	case !s.told:
		errs = append(errs, s.print(sum))
	default:
		errs = append(errs, s.view.Err(), sum.ByHand.tell(s.options))
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
	errs = append(errs, s.writeJUnit(sum))
	if s.file != nil {
		s.file.Summary(sum)
		if err := s.file.Close(); err != nil {
			errs = append(errs, fmt.Errorf("--record: %w", err))
		}
	}
	return sum, errors.Join(append(errs, s.closeOutcomes())...)
}
