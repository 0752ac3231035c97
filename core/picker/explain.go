package picker

import (
	"fmt"
	"io"
	"sort"
	"strings"
	"text/tabwriter"
)

// Explanation is a decision told to people and programs: why the request went
// there. It is complete when the decision was recorded with Detail.
type Explanation struct {
	Request     string             `json:"request"`
	Path        string             `json:"path,omitempty"`
	Model       string             `json:"model,omitempty"`
	TargetModel string             `json:"target_model,omitempty"`
	Priority    int                `json:"priority,omitempty"`
	FairnessID  string             `json:"fairness_id,omitempty"`
	Tokens      int                `json:"prompt_tokens,omitempty"`
	AtSeconds   float64            `json:"at_seconds"`
	Destination string             `json:"destination,omitempty"`
	Error       string             `json:"error,omitempty"`
	Status      int                `json:"status,omitempty"`
	Candidates  []string           `json:"candidates"`
	Screened    []ExplainedRemoval `json:"screened,omitempty"`
	Profiles    []ExplainedProfile `json:"profiles,omitempty"`
	Disagg      string             `json:"disaggregation,omitempty"`
	Headers     map[string]string  `json:"headers_added,omitempty"`
	Took        map[string]float64 `json:"plugin_seconds,omitempty"`
	Saturation  *float64           `json:"saturation,omitempty"`
}

// ExplainedRemoval is what one filter took out.
type ExplainedRemoval struct {
	By        string   `json:"by"`
	Endpoints []string `json:"endpoints"`
}

// ExplainedProfile is one profile's run.
type ExplainedProfile struct {
	Name      string              `json:"name"`
	Primary   bool                `json:"primary,omitempty"`
	Removed   []ExplainedRemoval  `json:"removed,omitempty"`
	Scorers   []ExplainedScorer   `json:"scorers,omitempty"`
	Endpoints []ExplainedEndpoint `json:"endpoints"`
	Tied      []string            `json:"tied,omitempty"`
	Picked    []string            `json:"picked"`
}

// ExplainedScorer is a column: a scorer and its weight.
type ExplainedScorer struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
}

// ExplainedEndpoint is a row: one endpoint's scores in the order of Scorers.
type ExplainedEndpoint struct {
	Name     string    `json:"name"`
	HostPort string    `json:"host_port"`
	Raw      []float64 `json:"raw"`
	Weighted []float64 `json:"weighted"`
	Total    float64   `json:"total"`
	Picked   bool      `json:"picked,omitempty"`
}

// Explain tells a decision.
func (d *Decision) Explain() *Explanation {
	r := d.Request
	name := func(i int32) string { return d.View.States[i].Name }
	names := func(list []int32) []string {
		out := make([]string, 0, len(list))
		for _, i := range list {
			out = append(out, name(i))
		}
		return out
	}
	removals := func(list []Removal) []ExplainedRemoval {
		var out []ExplainedRemoval
		for _, x := range list {
			out = append(out, ExplainedRemoval{x.By.Name(), names(x.Removed)})
		}
		return out
	}
	e := &Explanation{Request: r.ID, Path: r.Path(), Model: r.Model, TargetModel: r.TargetModel, Priority: r.Objective.Priority,
		FairnessID: r.FairnessID, Tokens: r.Tokens, AtSeconds: d.At.Seconds(), Destination: d.Destination(), Candidates: names(d.Candidates),
		Screened: removals(d.Screened), Disagg: d.Disagg}
	if d.Err != nil {
		e.Error, e.Status = d.Err.Error(), d.Err.Code.Status()
	}
	if d.Saturation >= 0 {
		s := d.Saturation
		e.Saturation = &s
	}
	for _, h := range d.Set {
		if e.Headers == nil {
			e.Headers = map[string]string{}
		}
		e.Headers[h.Name] = h.Value
	}
	for _, s := range d.Spans {
		if e.Took == nil {
			e.Took = map[string]float64{}
		}
		e.Took[s.Plugin.Name()] += s.Took.Seconds()
	}
	for i := range d.Profiles {
		p := &d.Profiles[i]
		x := ExplainedProfile{Name: p.Name, Primary: i == d.Primary, Removed: removals(p.Removed), Tied: names(p.Tied), Picked: names(p.Picked)}
		for _, s := range p.Scorers {
			x.Scorers = append(x.Scorers, ExplainedScorer{s.Scorer.Name(), s.Weight})
		}
		for j, k := range p.Left {
			if j >= len(p.Totals) {
				break
			}
			row := ExplainedEndpoint{Name: name(k), HostPort: d.View.States[k].HostPort(), Total: p.Totals[j]}
			for n := range p.Raw {
				row.Raw = append(row.Raw, p.Raw[n][j])
				row.Weighted = append(row.Weighted, p.Raw[n][j]*p.Scorers[n].Weight)
			}
			for _, c := range p.Picked {
				row.Picked = row.Picked || c == k
			}
			x.Endpoints = append(x.Endpoints, row)
		}
		sort.SliceStable(x.Endpoints, func(a, b int) bool { return x.Endpoints[a].Total > x.Endpoints[b].Total })
		e.Profiles = append(e.Profiles, x)
	}
	return e
}

// maxRows is how many endpoints a table shows; the rest is counted.
const maxRows = 20

// WriteTable writes the explanation so that a person sees at a glance where
// the request went and why.
func (e *Explanation) WriteTable(w io.Writer) error {
	model := e.Model
	if e.TargetModel != e.Model {
		model += " -> " + e.TargetModel
	}
	fmt.Fprintf(w, "request %s  model %s  prompt %d tokens  priority %d\n", e.Request, model, e.Tokens, e.Priority)
	if e.Error != "" {
		fmt.Fprintf(w, "refused with %d: %s\n", e.Status, e.Error)
	} else {
		fmt.Fprintf(w, "went to %s%s\n", e.Destination, e.wentTo())
	}
	if e.Disagg != "" {
		fmt.Fprintf(w, "disaggregation: %s\n", e.Disagg)
	}
	for _, k := range sortedNames(e.Headers) {
		fmt.Fprintf(w, "header %s: %s\n", k, e.Headers[k])
	}
	for _, r := range e.Screened {
		fmt.Fprintf(w, "%s screened out %s\n", r.By, strings.Join(r.Endpoints, ", "))
	}
	for i := range e.Profiles {
		if err := e.Profiles[i].write(w); err != nil {
			return err
		}
	}
	return nil
}

func (e *Explanation) wentTo() string {
	for _, p := range e.Profiles {
		if p.Primary {
			return " (" + strings.Join(p.Picked, ", ") + ")"
		}
	}
	return ""
}

func sortedNames(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

func (p *ExplainedProfile) write(w io.Writer) error {
	fmt.Fprintf(w, "\nprofile %s\n", p.Name)
	for _, r := range p.Removed {
		fmt.Fprintf(w, "  %s removed %s\n", r.By, strings.Join(r.Endpoints, ", "))
	}
	if len(p.Endpoints) == 0 {
		fmt.Fprintf(w, "  no endpoint was left\n")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  endpoint")
	for _, s := range p.Scorers {
		fmt.Fprintf(t, "\t%s x%g", s.Name, s.Weight)
	}
	fmt.Fprint(t, "\ttotal\t\n")
	for i, r := range p.Endpoints {
		if i == maxRows {
			fmt.Fprintf(t, "  and %d more\t\n", len(p.Endpoints)-maxRows)
			break
		}
		fmt.Fprintf(t, "  %s", r.Name)
		for n := range r.Raw {
			fmt.Fprintf(t, "\t%.4g = %.4g", r.Raw[n], r.Weighted[n])
		}
		mark := ""
		if r.Picked {
			mark = "<- picked"
		}
		fmt.Fprintf(t, "\t%.4g\t%s\n", r.Total, mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(p.Tied) > 1 {
		fmt.Fprintf(w, "  %d endpoints tied for the best total; which of them won was drawn\n", len(p.Tied))
	}
	return nil
}
