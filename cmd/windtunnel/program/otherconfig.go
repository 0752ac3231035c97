package program

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// moves is the result of replay --config.
type moves struct {
	Config string `json:"config"`
	inputlog.Moves
	Endpoints []inputlog.MovedEndpoint `json:"endpoints"`
	Reasons   []inputlog.MovedReason   `json:"reasons"`
	Scores    []inputlog.MovedScore    `json:"scores"`
	Notes     []string                 `json:"notes,omitempty"`
	// Lost counts lines that are missing in the recording.
	Lost int64 `json:"lost,omitempty"`
	// First is the first decision for which the recorded configuration itself now decides differently.
	First *inputlog.Difference `json:"first,omitempty"`
}

// otherConfig makes another configuration decide about every recorded request.
func (c *replayCmd) otherConfig(o *outside) error {
	other, err := readOther(c.Config)
	if err != nil {
		return err
	}
	m := moves{Config: c.Config}
	other.Look = m.Look
	p := &inputlog.Player{Registry: plugins.Builtin(), Others: []*inputlog.Other{other}}
	if err := eachInput(o, c.Files, p.Line); err != nil {
		return recording.InputError(err)
	}
	if m.Decisions == 0 {
		return exit.Errorf(exit.Input, "%s has no decision that another configuration could be asked about", c.Files[0])
	}
	m.Endpoints, m.Reasons, m.Scores, m.Notes, m.Lost, m.First = m.Moves.Endpoints(), m.Moves.Reasons(),
		m.Moves.Scores(), other.Notes, p.Lost, p.First
	if c.Output == "json" {
		return writeJSON(o.Stdout, m)
	}
	return m.write(o.Stdout)
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
	fmt.Fprintf(to, "an estimate: %d recorded requests, with the times at which they came, the lengths and common "+
		"beginnings of their prompts and the lengths of their answers, are sent to the simulated model servers of %s\n",
		len(q.List), c.Scenario)
	if q.Without > 0 {
		fmt.Fprintf(to, "%d requests had no prompt and are left out\n", q.Without)
	}
	for _, model := range slices.Sorted(maps.Keys(strangers)) {
		fmt.Fprintf(to, "%d requests asked for %.80q, which no server in %s has: they ask for its workload's model "+
			"instead\n", strangers[model], model, c.Scenario)
	}
	if n := q.Unknown(); n > 0 {
		fmt.Fprintf(to, "the recording lacks the answer's length of %d requests: the model servers of %s choose "+
			"it\n", n, c.Scenario)
	}
	options := report.Options{Out: o.Out(), Color: o.Color(), Columns: o.Columns, Scenario: s.Name, Seed: s.Seed,
		Requests: len(q.List), InFlight: len(q.List), Detail: c.detail()}
	c.set(&options)
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

func (m *moves) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s would have sent %d of %d requests (%s) elsewhere; each decision is made alone, after the "+
		"recorded ones\n",
		m.Config, m.Moved, m.Decisions, percent(m.Moved, m.Decisions))
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
	if len(m.Notes) > 0 || m.Lost > 0 || m.First != nil {
		fmt.Fprintln(w)
	}
	for _, note := range m.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	if m.Lost > 0 {
		fmt.Fprintf(w, "note: %d lines are missing from the log: the decisions there were not asked about\n", m.Lost)
	}
	if m.First != nil {
		fmt.Fprintf(w, "note: the recorded configuration itself decides otherwise now: %s\n", m.First)
	}
	return w.Flush()
}

func percent(n, of int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(1, of))) }
