package picker

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"
)

// Explanation is a decision and its reasons, for people and programs. It is complete if the decision was recorded with
// Detail.
type Explanation struct {
	Request string `json:"request"`
	// Pool is the request's pool, and Picker the replica that decided, in recordings of several.
	Pool        string             `json:"pool,omitempty"`
	Picker      string             `json:"picker,omitempty"`
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
	Prefill     string             `json:"prefill,omitempty"`   // the prefill endpoint, if it is another one
	Admission   string             `json:"admission,omitempty"` // outcome of flow control
	Headers     map[string]string  `json:"headers_added,omitempty"`
	Took        map[string]float64 `json:"plugin_seconds,omitempty"`
	Points      map[string]float64 `json:"point_seconds,omitempty"` // by extension point
	TookSeconds float64            `json:"decision_seconds,omitempty"`
	Saturation  *float64           `json:"saturation,omitempty"`
	Notes       []string           `json:"notes,omitempty"` // what a preview could not know
}

// ExplainedRemoval lists the endpoints that one filter removed.
type ExplainedRemoval struct {
	By        string   `json:"by"`
	Type      string   `json:"type"`
	Endpoints []string `json:"endpoints"`
	// Why has, for each of Endpoints, what it lacked; "" if the filter gives no reason.
	Why []string `json:"why,omitempty"`
	// More is the number of endpoints left out of Endpoints.
	More int `json:"more,omitempty"`
}

// Reasoner is a Filter or Screener that explains why it removed an endpoint (an index of the decision's View). The
// words follow the endpoint's name: "is not ready".
type Reasoner interface {
	Why(d *Decision, endpoint int32) string
}

type ExplainedProfile struct {
	Name      string              `json:"name"`
	Primary   bool                `json:"primary,omitempty"`
	Removed   []ExplainedRemoval  `json:"removed,omitempty"`
	Scorers   []ExplainedScorer   `json:"scorers,omitempty"`
	Endpoints []ExplainedEndpoint `json:"endpoints"`
	Tied      []string            `json:"tied,omitempty"`
	Picked    []string            `json:"picked"`
	Picker    string              `json:"picker,omitempty"` // the plug-in that picked
	// More is the number of endpoints left out of Endpoints.
	More int `json:"more,omitempty"`
}

// ExplainedScorer is a column: a scorer and its weight.
type ExplainedScorer struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
	// Type is the plug-in's type, if it differs from its name.
	Type string `json:"type,omitempty"`
}

func (s *ExplainedScorer) text() string { return fmt.Sprintf("%s x%g", s.Name, s.Weight) }

// ExplainedEndpoint is a row: one endpoint's scores in the order of Scorers.
type ExplainedEndpoint struct {
	Name     string    `json:"name"`
	HostPort string    `json:"host_port"`
	Raw      []float64 `json:"raw"`
	Weighted []float64 `json:"weighted"`
	Total    float64   `json:"total"`
	Picked   bool      `json:"picked,omitempty"`
	// Predicted is the request's predicted latency there, nil without a prediction.
	Predicted *Forecast `json:"predicted,omitempty"`
}

func (r *ExplainedEndpoint) text(scorer int) string {
	return fmt.Sprintf("%.4g = %.4g", r.Raw[scorer], r.Weighted[scorer])
}

// Explain returns the decision's explanation.
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
			e := ExplainedRemoval{By: x.By.Name(), Type: x.By.Type(), Endpoints: names(x.Removed)}
			if r, ok := x.By.(Reasoner); ok {
				for _, i := range x.Removed {
					e.Why = append(e.Why, r.Why(d, i))
				}
			}
			out = append(out, e)
		}
		return out
	}
	e := &Explanation{Request: r.ID, Path: r.Path(), Model: r.Model, TargetModel: r.TargetModel,
		Priority:   r.Objective.Priority,
		FairnessID: r.FairnessID, Tokens: r.Tokens, AtSeconds: d.At.Seconds(), Destination: d.Destination(),
		Candidates: names(d.Candidates),
		Screened:   removals(d.Screened), Disagg: d.Disagg, Admission: d.Admission, TookSeconds: d.Took.Seconds()}
	if d.Err != nil {
		e.Error, e.Status = d.Err.Error(), d.Err.Status
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
	if len(d.Spans) > 0 {
		e.Took, e.Points = map[string]float64{}, map[string]float64{}
	}
	for _, s := range d.Spans {
		e.Took[s.Plugin.Name()] += s.Took.Seconds()
		e.Points[s.Point] += s.Took.Seconds()
	}
	for i := range d.Profiles {
		p := &d.Profiles[i]
		if p.Ok() && p.Name == "prefill" && i != d.Primary {
			e.Prefill = name(p.Picked[0])
		}
		x := ExplainedProfile{Name: p.Name, Primary: i == d.Primary, Removed: removals(p.Removed), Tied: names(p.Tied),
			Picked: names(p.Picked)}
		if p.Picker != nil {
			x.Picker = p.Picker.Name()
		}
		for _, s := range p.Scorers {
			column := ExplainedScorer{Name: s.Scorer.Name(), Weight: s.Weight}
			if s.Scorer.Type() != column.Name {
				column.Type = s.Scorer.Type()
			}
			x.Scorers = append(x.Scorers, column)
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
			row.Picked = slices.Contains(p.Picked, k)
			if d.cycle.p != nil {
				for _, f := range d.cycle.p.predictors {
					row.Predicted = f.Forecast(d, k)
				}
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

// WriteTable writes the explanation as a table for people. If columns are too few for all scorers, some scorers go into
// further tables below. 0 columns is unlimited.
func (e *Explanation) WriteTable(w io.Writer, columns int) error {
	model := e.Model
	if e.TargetModel != e.Model {
		model += " -> " + e.TargetModel
	}
	fmt.Fprintf(w, "request %s  model %s  prompt %d tokens  priority %d\n", e.Request, model, e.Tokens, e.Priority)
	if e.Pool != "" {
		fmt.Fprintf(w, "its model leads to pool %s\n", e.Pool)
	}
	if e.Picker != "" {
		fmt.Fprintf(w, "decided by %s\n", e.Picker)
	}
	if e.Error != "" {
		fmt.Fprintf(w, "refused with %d: %s\n", e.Status, e.Error)
	} else {
		fmt.Fprintf(w, "went to %s%s\n", e.Destination, e.wentTo())
	}
	if e.Admission != "" {
		fmt.Fprintf(w, "admission: %s\n", e.Admission)
	}
	if e.Disagg != "" {
		fmt.Fprintf(w, "disaggregation: %s", e.Disagg)
		if e.Prefill != "" {
			fmt.Fprintf(w, ", prefill on %s", e.Prefill)
		}
		fmt.Fprintln(w)
	}
	for _, k := range slices.Sorted(maps.Keys(e.Headers)) {
		fmt.Fprintf(w, "header %s: %s\n", k, e.Headers[k])
	}
	for _, r := range e.Screened {
		fmt.Fprintf(w, "%s screened out %s\n", r.By, r.text())
	}
	for i := range e.Profiles {
		if err := e.Profiles[i].write(w, columns); err != nil {
			return err
		}
	}
	if e.TookSeconds > 0 {
		fmt.Fprintf(w, "\ndecided in %s", micros(e.TookSeconds))
		for _, point := range slices.Sorted(maps.Keys(e.Points)) {
			fmt.Fprintf(w, ", %s %s", point, micros(e.Points[point]))
		}
		fmt.Fprintln(w)
	}
	for i, note := range e.Notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "note: %s\n", note)
	}
	return nil
}

func micros(seconds float64) string { return fmt.Sprintf("%.0f us", seconds*1e6) }

// text lists the removed endpoints, grouped by reason.
func (r *ExplainedRemoval) text() string {
	var reasons []string
	by := map[string][]string{}
	for i, e := range r.Endpoints {
		why := ""
		if i < len(r.Why) {
			why = r.Why[i]
		}
		if by[why] == nil {
			reasons = append(reasons, why)
		}
		by[why] = append(by[why], e)
	}
	var out []string
	for _, why := range reasons {
		list := by[why]
		text := strings.Join(list[:min(len(list), maxRows)], ", ")
		if n := len(list) - maxRows; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		if why != "" {
			text += " (" + why + ")"
		}
		out = append(out, text)
	}
	if r.More > 0 {
		out = append(out, fmt.Sprintf("and %d more", r.More))
	}
	return strings.Join(out, "; ")
}

// Trim keeps the best n endpoints of each profile and counts the rest, so that the record of a decision over thousands
// stays short.
func (e *Explanation) Trim(n int) {
	trim := func(list []ExplainedRemoval) {
		for i := range list {
			if x := &list[i]; len(x.Endpoints) > n {
				x.More += len(x.Endpoints) - n
				x.Endpoints, x.Why = x.Endpoints[:n], x.Why[:min(len(x.Why), n)]
			}
		}
	}
	trim(e.Screened)
	for i := range e.Profiles {
		p := &e.Profiles[i]
		trim(p.Removed)
		if len(p.Endpoints) > n {
			p.More += len(p.Endpoints) - n
			p.Endpoints = p.Endpoints[:n]
		}
		if len(p.Tied) > n {
			p.Tied = p.Tied[:n]
		}
	}
	if len(e.Candidates) > n {
		e.Candidates = append(e.Candidates[:n:n], fmt.Sprintf("and %d more", len(e.Candidates)-n))
	}
}

func (e *Explanation) wentTo() string {
	for _, p := range e.Profiles {
		if p.Primary {
			return " (" + strings.Join(p.Picked, ", ") + ")"
		}
	}
	return ""
}

func (p *ExplainedProfile) write(w io.Writer, columns int) error {
	fmt.Fprintf(w, "\nprofile %s\n", p.Name)
	for _, r := range p.Removed {
		fmt.Fprintf(w, "  %s removed %s\n", r.By, r.text())
	}
	if len(p.Endpoints) == 0 {
		fmt.Fprintf(w, "  no endpoint was left\n")
		return nil
	}
	for from, last := 0, false; !last; {
		to := p.beside(from, columns)
		last = to == len(p.Scorers) && (to == from || columns <= 0 || p.width(from, to)+p.totals() <= columns)
		if err := p.table(w, from, to, last); err != nil {
			return err
		}
		from = to
	}
	if err := p.predictions(w); err != nil {
		return err
	}
	if len(p.Tied) > 1 {
		fmt.Fprintf(w, "  %d endpoints tied for the best total; %s took %s\n", len(p.Tied), p.Picker,
			strings.Join(p.Picked, ", "))
	}
	return nil
}

// table writes the scores of scorers from to to, and the totals if asked.
func (p *ExplainedProfile) table(w io.Writer, from, to int, totals bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  endpoint")
	for _, s := range p.Scorers[from:to] {
		fmt.Fprint(t, "\t", s.text())
	}
	if totals {
		fmt.Fprint(t, "\ttotal\t")
	}
	fmt.Fprintln(t)
	for i := range p.Endpoints {
		r := &p.Endpoints[i]
		if i == maxRows {
			if totals {
				fmt.Fprintf(t, "  and %d more\t\n", len(p.Endpoints)-maxRows+p.More)
			}
			break
		}
		fmt.Fprintf(t, "  %s", r.Name)
		for n := from; n < min(to, len(r.Raw)); n++ {
			fmt.Fprint(t, "\t", r.text(n))
		}
		if totals {
			mark := ""
			if r.Picked {
				mark = "<- picked"
			}
			fmt.Fprintf(t, "\t%.4g\t%s", r.Total, mark)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// predictions writes the endpoints' predicted latencies, if there are any.
func (p *ExplainedProfile) predictions(w io.Writer) error {
	if !slices.ContainsFunc(p.Endpoints, func(r ExplainedEndpoint) bool { return r.Predicted != nil }) {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  predicted\tttft\theadroom\ttpot\theadroom")
	headroom := func(ms *float64) string {
		if ms == nil {
			return "-"
		}
		return fmt.Sprintf("%+.1f ms", *ms)
	}
	for i := range p.Endpoints[:min(len(p.Endpoints), maxRows)] {
		r := &p.Endpoints[i]
		if f := r.Predicted; f != nil {
			fmt.Fprintf(t, "  %s\t%.1f ms\t%s\t%.2f ms\t%s\n", r.Name, f.TTFTMs, headroom(f.TTFTHeadroomMs), f.TPOTMs,
				headroom(f.TPOTHeadroomMs))
		} else {
			fmt.Fprintf(t, "  %s\tunknown\n", r.Name)
		}
	}
	return t.Flush()
}

// beside returns the end of the range of scorers that fit beside each other, at least one.
func (p *ExplainedProfile) beside(from, columns int) int {
	to := min(from+1, len(p.Scorers))
	for to < len(p.Scorers) && (columns <= 0 || p.width(from, to+1) <= columns) {
		to++
	}
	return to
}

// width returns the width of a table of these scorers.
func (p *ExplainedProfile) width(from, to int) int {
	widths := make([]int, 1+to-from)
	widths[0] = len("  endpoint")
	for n, s := range p.Scorers[from:to] {
		widths[1+n] = len(s.text())
	}
	for i := range p.Endpoints[:min(len(p.Endpoints), maxRows)] {
		r := &p.Endpoints[i]
		widths[0] = max(widths[0], 2+len(r.Name))
		for n := from; n < min(to, len(r.Raw)); n++ {
			widths[1+n-from] = max(widths[1+n-from], len(r.text(n)))
		}
	}
	all := 2 * (to - from)
	for _, n := range widths {
		all += n
	}
	return all
}

// totals returns the width of the column of totals and the mark.
func (p *ExplainedProfile) totals() int {
	widest := len("total")
	for i := range p.Endpoints[:min(len(p.Endpoints), maxRows)] {
		widest = max(widest, len(fmt.Sprintf("%.4g", p.Endpoints[i].Total)))
	}
	return 2 + widest + 2 + len("<- picked")
}
