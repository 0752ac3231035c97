package program

import (
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/whatif"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

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
