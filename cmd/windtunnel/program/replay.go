package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/whatif"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
	"github.com/windtunnel/windtunnel/web"
)

type replayCmd struct {
	Files    []string `arg:"" name:"recording" help:"A recording, or - for standard input. --through-core and --config take several that continue each other."`
	Core     bool     `name:"through-core" help:"Play the recorded inputs into the picker again, and compare."`
	Config   string   `placeholder:"FILE" help:"Make each decision again with another EndpointPickerConfig."`
	Onward   bool     `help:"Send the recorded requests in virtual time, to the model servers of --scenario."`
	Scenario string   `placeholder:"FILE" help:"With --onward, the scenario whose model servers answer."`
	shownIn
	viewFlag
	otlpFlags
	pageFlags
	Speed float64 `default:"0" placeholder:"X" help:"Play X times as fast as it was; 0 shows everything at once."`
}

func (c *replayCmd) Help() string {
	return `Shows a recording as the run was shown, or plays it through the endpoint picker: whether it still decides
the same (--through-core), what another configuration would have decided (--config), and the effect of all
decisions together (--onward, with the configuration of the scenario or that of --config; an estimate).

Examples:
  windtunnel sim --record yesterday.ndjson.gz
  windtunnel replay yesterday.ndjson.gz
  windtunnel replay yesterday.ndjson.gz --speed 1            # as fast as it was
  windtunnel replay yesterday.ndjson.gz --view lines         # one line per request
  windtunnel replay yesterday.ndjson.gz --output csv > requests.csv
  windtunnel replay yesterday.ndjson.gz --ui                 # on a page, at any speed
  windtunnel replay yesterday.ndjson.gz --output json | jq 'select(.step == "part2_sent")'
  windtunnel replay yesterday.ndjson.gz --otlp http://127.0.0.1:4318  # to a collector, or to Jaeger
  windtunnel replay yesterday.ndjson.gz --through-core       # does the picker decide as it did then?
  windtunnel replay yesterday.ndjson.gz --config other.yaml  # what would this one have decided?
  windtunnel replay yesterday.ndjson.gz --config other.yaml --onward --scenario mine.yaml`
}

// Bounds of --speed.
const slowest, fastest = 1e-3, 1e6

func (c *replayCmd) Run(o *outside) error {
	if err := c.fits(o); err != nil {
		return err
	}
	switch {
	case c.Onward != (c.Scenario != ""):
		return exit.Errorf(exit.Usage, "--onward and --scenario go together: the one sends the recorded requests, "+
			"the other describes the model servers")
	case (c.Core || c.Config != "") && !c.Onward && (c.Output != "text" && c.Output != "json" || c.JUnit != ""):
		return exit.Errorf(exit.Usage, "decisions are shown as text or json, and have no verdict on requests; csv, "+
			"parquet, the reports of other tools and --junit are for a replay, or for --onward")
	case c.Core && c.Onward:
		return exit.Errorf(exit.Usage, "--through-core plays the recorded inputs, and --onward simulates their "+
			"effects; give one of them")
	case c.Onward:
		return c.onward(o)
	case c.Core && c.Config != "":
		return exit.Errorf(exit.Usage, "--through-core plays the recorded configuration, and --config plays another "+
			"one; give one of them")
	case c.Core:
		return c.throughCore(o)
	case c.Config != "":
		return c.otherConfig(o)
	case len(c.Files) > 1:
		return exit.Errorf(exit.Usage, "found %d recordings; expected one, several only with --through-core or "+
			"--config", len(c.Files))
	}
	if c.Speed != 0 && !(c.Speed >= slowest && c.Speed <= fastest) { // also refuses NaN
		return exit.Errorf(exit.Usage, "--speed: found %v; expected 0, or from %v to %v", c.Speed, slowest,
			float64(fastest))
	}
	options := report.Options{Out: o.Out(), Color: o.Color(), Columns: o.Columns, Detail: c.detail()}
	c.set(o, &options)
	if c.View == "auto" {
		if err := c.count(&options); err != nil {
			return err
		}
	}
	if c.UI && !c.once() { // requests are judged as they end, and the summary with the SLO comes last
		if recorded, _ := report.ReadFile(c.Files[0], func(record.Event) error { return nil }); recorded != nil {
			options.SLO = recorded.SLO.SLO()
		}
	}
	page, err := c.pageFlags.start(&options, web.Meta{Mode: "replay", File: c.Files[0]})
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
	session, err := report.Start(options)
	if err != nil {
		return err
	}
	page.measure(session)
	ctx, stop := o.Context()
	defer stop()
	pace := pacer{ctx: ctx, speed: c.Speed, start: time.Now()}
	events := 0
	recorded, err := readRecording(o, c.Files[0], func(e record.Event) error {
		events++
		if err := pace.wait(e.Time); err != nil {
			return err
		}
		session.Record(e)
		return nil
	})
	interrupted := errors.Is(err, context.Canceled)
	if recorded != nil {
		session.Restore(*recorded)
		page.describe(func(m *web.Meta) {
			m.Scenario, m.Seed, m.Pools = recorded.Scenario, recorded.Seed, recordedPools(recorded)
		})
		interrupted = interrupted || recorded.Interrupted
	}
	if err != nil && !interrupted && events == 0 {
		return recording.InputError(err) // there is nothing to summarize
	}
	// The readable part of a broken recording is shown.
	if _, endErr := session.End(interrupted || err != nil); endErr != nil && err == nil {
		err = endErr
	}
	switch {
	case errors.Is(err, context.Canceled):
		return exit.Reported(exit.Interrupted, err)
	case err == nil && recorded == nil:
		fmt.Fprintf(o.Stderr, "windtunnel: %s has no summary at its end: the run that wrote it did not end by itself\n",
			c.Files[0])
	}
	if page != nil && !c.once() {
		page.end()
		page.played(ctx, func(each func(line []byte) error) error { return recording.ReadInputsFile(c.Files[0], each) })
	}
	page.stay(ctx, o)
	return recording.InputError(err)
}

// once reports whether the recording can be read only once.
func (c *replayCmd) once() bool {
	info, err := os.Stat(c.Files[0])
	return c.Files[0] == "-" || err == nil && !info.Mode().IsRegular()
}

// count reads the recording once to choose how much of each request to show.
func (c *replayCmd) count(options *report.Options) error {
	if c.once() {
		options.Detail = report.Steps
		return nil
	}
	var err error
	options.Requests, err = recording.CountRequests(c.Files[0])
	options.Detail = report.DetailFor(options.Requests)
	var line *recording.LineError
	if errors.As(err, &line) {
		return nil // the error is returned after the lines before it have been shown
	}
	return recording.InputError(err)
}

// readRecording reads a recording, - for standard input.
func readRecording(o *outside, file string, each func(record.Event) error) (*report.Summary, error) {
	if file == "-" {
		return report.Read("standard input", o.Stdin, each)
	}
	return report.ReadFile(file, each)
}

// pacer plays recorded time at a multiple of wall time.
type pacer struct {
	ctx   context.Context
	speed float64
	start time.Time
}

func (p *pacer) wait(t machine.Time) error {
	if p.speed == 0 {
		return p.ctx.Err()
	}
	due := min(float64(t)/p.speed, math.MaxInt64/2) // a recording may hold any time
	if !pause.For(p.ctx, time.Duration(due)-time.Since(p.start)) {
		return p.ctx.Err()
	}
	return nil
}

// played is the result of replay --through-core.
type played struct {
	inputlog.Counts
	// First is the first difference; nil without one.
	First *inputlog.Difference `json:"first,omitempty"`
}

// throughCore plays the recorded inputs of the picker again, and compares its effects.
func (c *replayCmd) throughCore(o *outside) error {
	p := &inputlog.Player{Registry: plugins.Builtin()}
	began := time.Now()
	if err := eachInput(o, c.Files, p.Line); err != nil {
		return recording.InputError(err)
	}
	if c.Output == "json" {
		if err := writeJSON(o.Stdout, played{p.Counts, p.First}); err != nil {
			return err
		}
	} else {
		n := p.Counts
		fmt.Fprintf(o.Stdout, "played %s of %s in %.2f s; compared %s, among them %s\n",
			terminal.Counted(n.Inputs, "input"), terminal.Counted(n.Requests, "request"), time.Since(began).Seconds(),
			terminal.Counted(n.Effects, "effect"), terminal.Counted(n.Decisions, "decision"))
		if n.Gaps > 0 {
			fmt.Fprintf(o.Stdout, "%d gaps: %d lines were never written, and %d could not be played\n", n.Gaps, n.Lost,
				n.Skipped)
		}
		if p.First == nil {
			fmt.Fprintln(o.Stdout, "no differences")
		} else {
			fmt.Fprintf(o.Stdout, "%d inputs had other effects; the first\n  %s\n", n.Different, p.First)
		}
	}
	switch {
	case p.First != nil:
		return exit.Errorf(exit.Failed, "%d of %d inputs had other effects than were recorded", p.Different, p.Inputs)
	case p.Effects == 0:
		return exit.Errorf(exit.Input, "%s has nothing that could be played", c.Files[0])
	}
	return nil
}

// eachInput reads the logs of inputs of recordings in order, - for standard input.
func eachInput(o *outside, files []string, each func(line []byte) error, others ...func(line []byte)) (err error) {
	for i := 0; i < len(files) && err == nil; i++ {
		if files[i] == "-" {
			err = recording.ReadInputs("standard input", o.Stdin, each, others...)
		} else {
			err = recording.ReadInputsFile(files[i], each, others...)
		}
	}
	return err
}

// otherConfig makes another configuration decide about every recorded request.
func (c *replayCmd) otherConfig(o *outside) error {
	other, err := readOther(c.Config)
	if err != nil {
		return err
	}
	a, err := whatif.Ask(func(each func([]byte) error) error { return eachInput(o, c.Files, each) },
		whatif.Question{Every: true, Config: other.Config, Name: other.Name, Most: mostMoved})
	if err != nil {
		return recording.InputError(err)
	}
	if a.Decisions == 0 {
		return exit.Errorf(exit.Input, "%s has no decision that another configuration could be asked about", c.Files[0])
	}
	a.Config = c.Config
	if c.Output == "json" {
		return writeJSON(o.Stdout, a)
	}
	return writeMoves(o, a)
}

// onward sends the recorded requests in virtual time to the model servers of a scenario.
func (c *replayCmd) onward(o *outside) error {
	var q inputlog.Requests
	if err := eachInput(o, c.Files, q.Line, q.Event); err != nil {
		return recording.InputError(err)
	}
	if len(q.List) == 0 {
		return exit.Errorf(exit.Input, "%s has no request with a prompt", c.Files[0])
	}
	s, err := loadScenario(o, c.Scenario)
	if err != nil {
		return err
	}
	if c.Config != "" {
		text, err := files.Read(c.Config, strictyaml.MaxBytes)
		if err != nil {
			return exit.With(exit.Input, err)
		}
		s.Pools[0].EPP.Config = scenario.PickerConfig{File: c.Config, Text: text}
	}
	strangers := s.SendAgain(q.List)
	to := o.Stdout
	if c.Output != "text" {
		to = o.Stderr
	}
	fmt.Fprintf(to, "an estimate: sends %s, with the recorded times, lengths and common beginnings of prompts and "+
		"lengths of answers, to the simulated model servers of %s\n", terminal.Counted(len(q.List), "recorded request"),
		c.Scenario)
	if q.Without > 0 {
		fmt.Fprintf(to, "left out: %s without a prompt\n", terminal.Counted(q.Without, "request"))
	}
	for _, model := range slices.Sorted(maps.Keys(strangers)) {
		fmt.Fprintf(to, "%s for %.80q, which no server in %s has: its workload's model instead\n",
			terminal.Counted(strangers[model], "request"), model, c.Scenario)
	}
	if n := q.Unknown(); n > 0 {
		fmt.Fprintf(to, "the recording lacks the answer's length of %s: the model servers of %s choose it\n",
			terminal.Counted(n, "request"), c.Scenario)
	}
	options := report.Options{Out: o.Out(), Color: o.Color(), Columns: o.Columns, Scenario: s.Name, Seed: s.Seed,
		Requests: len(q.List), InFlight: len(q.List), Detail: c.detail()}
	c.set(o, &options)
	return sim(o, s, options, virtual.Options{}, "", nil)
}

// readOther reads another configuration.
func readOther(file string) (*inputlog.Other, error) {
	text, err := files.Read(file, strictyaml.MaxBytes)
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	return &inputlog.Other{Config: string(text), Name: file}, nil
}

// mostMoved is how many of the latest moved requests replay --config lists as JSON, and mostShown how many as text.
const mostMoved, mostShown = 100_000, 20

// writeMoves prints the answer for people, the verdict first.
func writeMoves(o *outside, m *whatif.Answer) error {
	fmt.Fprintln(o.Out(), terminal.Paint(o.Color()).Bold(terminal.Wrap(fmt.Sprintf("%s would have sent %s of %s "+
		"(%s) elsewhere", terminal.Printable(m.Config), terminal.Thousands(m.Moved),
		terminal.Counted(m.Decisions, "request"), percent(m.Moved, m.Decisions)), 0, o.Columns)))
	w := tabwriter.NewWriter(o.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "each decision is made alone, after the recorded ones")
	for _, x := range []struct {
		n    int
		what string
	}{{m.Prefill, "would have been prefilled elsewhere"}, {m.Refused, "would have been refused"},
		{m.Admitted, "were refused and would not have been"},
		{m.Queue, "were refused in the queue, without a decision"}} {
		if x.n > 0 {
			fmt.Fprintf(w, "%d %s\n", x.n, x.what)
		}
	}
	fmt.Fprintln(w, "\nendpoint\trecorded\tother\tmoved away")
	for _, e := range m.Endpoints {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", e.Endpoint, e.Recorded, e.Other, e.Moved)
	}
	if len(m.Reasons) > 0 {
		fmt.Fprintln(w, "\nreason\trequests\tof those compared")
	}
	for _, r := range m.Reasons {
		fmt.Fprintf(w, "%s\t%d\t%s\n", r.Reason, r.Requests, percent(r.Requests, m.Decisions))
	}
	if len(m.Scores) > 0 {
		fmt.Fprintln(w, "\nscorer in both\tscores\tmean difference\tlargest")
	}
	for _, s := range m.Scores {
		fmt.Fprintf(w, "%s\t%d\t%.4f\t%.4f\n", s.Scorer, s.Compared, s.Mean, s.Largest)
	}
	if n := len(m.Requests); n > 0 {
		fmt.Fprintln(w, "\nrequest, and why: by how much a scorer prefers the other endpoint, recorded → other")
		for _, x := range m.Requests[:min(n, mostShown)] {
			fmt.Fprintln(w, terminal.Wrap(record.Label(x.Request)+"  "+x.Text(), 4, o.Columns))
		}
		if n > mostShown {
			fmt.Fprintf(w, "and %s more (--output json)\n", terminal.Thousands(n-mostShown))
		}
	}
	if len(m.Notes) > 0 || m.Lost > 0 || m.First != nil {
		fmt.Fprintln(w)
	}
	for _, note := range m.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	if m.Lost > 0 {
		fmt.Fprintf(w, "note: the log lacks %s: the decisions there were not asked about\n",
			terminal.Counted(int(m.Lost), "line"))
	}
	if m.First != nil {
		fmt.Fprintf(w, "note: the recorded configuration itself decides otherwise now: %s\n", m.First)
	}
	return w.Flush()
}

func percent(n, of int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(1, of))) }
