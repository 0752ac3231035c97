package report

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
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
	// Judge holds the scenario's expectations against the summary of a run
	// that was not interrupted; nil where nothing is expected.
	Judge func(Summary) []Expectation

	indexes []IndexSummary
	hops    *HopTimes // as a recording tells
}

// Session is the readers of one run put together: tally, view, recording. It
// is the flow.Recorder to give to the run.
type Session struct {
	options Options
	tally   *Tally
	view    *View
	lines   *Writer // JSON on Out
	file    *Writer
	ordered *Ordered
	hops    *hopMeter // of a live run
}

// Start opens the recording and begins to listen.
func Start(o Options) (*Session, error) {
	s := &Session{options: o, tally: newTally(o.InFlight)}
	if o.File != "" {
		var err error
		if s.file, err = Create(o.File); err != nil {
			return nil, fmt.Errorf("--record: %w", err)
		}
	}
	if o.JSON {
		s.lines = NewWriter(o.Out)
	} else {
		if o.Detail == "" {
			o.Detail = DetailFor(o.Requests)
		}
		s.view = NewView(o.Out, s.tally, o.Detail, o.Requests, o.Color)
		s.view.width = o.Columns
		if o.Clock != nil {
			s.view.silence = maxSilence
		}
	}
	if o.Clock != nil {
		s.hops = newHopMeter()
		s.ordered = newOrdered(flow.Func(s.take), o.Clock, s.flush)
	}
	return s, nil
}

// Retell takes from a recording's summary what its events do not tell.
func (s *Session) Retell(told Summary) {
	s.options.Scenario, s.options.Seed, s.options.indexes, s.options.hops = told.Scenario, told.Seed, told.IndexLag, told.HopTimes
	s.options.Judge = func(Summary) []Expectation { return told.Expectations }
}

// Record takes one event of the run.
func (s *Session) Record(e flow.Event) {
	if s.ordered != nil {
		s.ordered.Record(e)
		return
	}
	s.take(e)
}

// KeepsExplanations tells whether anybody reads the reasons of decisions: a
// recording and the JSON lines do, a terminal does not show them.
func (s *Session) KeepsExplanations() bool { return s.lines != nil || s.file != nil }

// Inputs is where a log of the endpoint picker's inputs goes, and what of them.
type Inputs struct {
	// To takes whole lines, until the Session ends.
	To io.Writer
	// Bodies adds requests' bodies.
	Bodies bool
	// Version is windtunnel's.
	Version string
}

// Inputs is where a log of inputs goes; nil without a recording.
func (s *Session) Inputs() *Inputs {
	if s.file == nil {
		return nil
	}
	return &Inputs{s.file, s.options.Bodies, s.options.Version}
}

// Scraped is told how long a live picker took to read a page of metrics.
func (s *Session) Scraped(took time.Duration) { s.hops.Scraped(took) }

func (s *Session) take(e flow.Event) {
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
}

// flush lets somebody who reads our lines from a pipe see them as they happen.
// A failure is kept by the writer and told by End.
func (s *Session) flush() {
	if s.lines != nil {
		_ = s.lines.Flush()
	}
}

// Began reports whether there was any event.
func (s *Session) Began() bool {
	sent, _ := s.tally.Counts()
	return sent > 0
}

// Abandon closes the recording of a run that never began, without a summary.
func (s *Session) Abandon() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// End prints the summary, closes the recording and returns the summary. No
// event may be recorded after it. An interrupted run is told as such.
func (s *Session) End(interrupted bool) (Summary, error) {
	if s.ordered != nil {
		s.ordered.Close()
	}
	sum := s.tally.Summary()
	sum.Scenario, sum.Seed, sum.Interrupted, sum.IndexLag = s.options.Scenario, s.options.Seed, interrupted, s.options.indexes
	sum.HopTimes = s.options.hops
	if s.hops != nil {
		sum.HopTimes = s.hops.times()
	}
	if s.options.Judge != nil && !interrupted {
		sum.Expectations = s.options.Judge(sum)
	}
	var errs []error
	if s.view != nil {
		if err := s.view.Err(); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, sum.Write(s.options.Out, s.options.Color))
		}
	}
	if s.lines != nil {
		s.lines.Summary(sum)
		errs = append(errs, s.lines.Close())
	}
	if s.file != nil {
		s.file.Summary(sum)
		if err := s.file.Close(); err != nil {
			errs = append(errs, fmt.Errorf("--record: %w", err))
		}
	}
	return sum, errors.Join(errs...)
}
