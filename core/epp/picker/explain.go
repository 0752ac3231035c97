package picker

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Explanation is a decision and its reasons, for people and programs. It is complete if the decision was recorded with
// Detail.
type Explanation struct {
	Request string `json:"request"`
	// Pool is the request's pool, and Picker the replica that decided, in recordings of several.
	Pool        string `json:"pool,omitempty"`
	Picker      string `json:"picker,omitempty"`
	Path        string `json:"path,omitempty"`
	Model       string `json:"model,omitempty"`
	TargetModel string `json:"target_model,omitempty"`
	Priority    int    `json:"priority,omitempty"`
	FairnessID  string `json:"fairness_id,omitempty"`
	// Tokens is the prompt's length as the model server counted it, 0 before it did. Estimated is the picker's estimate
	// from the request's bytes, which the decision used.
	Tokens      int                `json:"prompt_tokens,omitempty"`
	Estimated   int                `json:"estimated_prompt_tokens,omitempty"`
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

// ExplainedEndpoint is a row: one endpoint's scores in the order of Scorers.
type ExplainedEndpoint struct {
	Name     string    `json:"name"`
	HostPort string    `json:"host_port"`
	Raw      []float64 `json:"raw"`
	Weighted []float64 `json:"weighted"`
	Total    float64   `json:"total"`
	Picked   bool      `json:"picked,omitempty"`
	// Inputs are the metrics that plug-ins read. It is nil if no plug-in reads any, if the endpoint was never scraped
	// before the decision, and if it was scraped again after it.
	Inputs *ExplainedInputs `json:"inputs,omitempty"`
	// Held is how many of the prompt's Blocks the endpoint holds, as far as the picker knows. Blocks is 0 where no
	// plug-in compares prompts.
	Held   int `json:"prefix_blocks_held,omitempty"`
	Blocks int `json:"prefix_blocks,omitempty"`
	// Predicted is the request's predicted latency there, nil without a prediction.
	Predicted *Forecast `json:"predicted,omitempty"`
}

// ExplainedInputs are an endpoint's metrics at a decision.
type ExplainedInputs struct {
	Waiting int64   `json:"waiting"`  // requests in the engine's queue
	Running int64   `json:"running"`  // requests in the engine's batch
	KV      float64 `json:"kv_usage"` // share of KV-cache blocks in use, 0..1
	// Age is the time from the scrape that read them to the decision, in seconds.
	Age float64 `json:"age_seconds"`
}

// text returns a scorer's product: the score, the weight, and their product.
func (p *ExplainedProfile) text(r *ExplainedEndpoint, scorer int) string {
	return fmt.Sprintf("%.4g × %g = %.4g", r.Raw[scorer], p.Scorers[scorer].Weight, r.Weighted[scorer])
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
		FairnessID: r.FairnessID, Estimated: r.Tokens, AtSeconds: d.At.Seconds(), Destination: d.Destination(),
		Candidates: names(d.Candidates),
		Screened:   removals(d.Screened), Disagg: d.Disagg, Admission: d.Admission, TookSeconds: d.Took.Seconds()}
	if d.Err != nil {
		e.Error, e.Status = d.Err.Error(), d.Err.Status
	}
	if d.Saturation >= 0 {
		e.Saturation = new(d.Saturation)
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
		reads := d.cycle.p != nil && d.cycle.p.ReadsMetrics()
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
			row.Held, row.Blocks = d.held(&d.View.States[k])
			s := &d.View.States[k]
			if reads && s.Scraped && s.UpdatedAt <= d.At {
				row.Inputs = &ExplainedInputs{s.Waiting, s.Running, s.KVUsage, (d.At - s.UpdatedAt).Seconds()}
			}
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

// held returns how many of the prompt's blocks an endpoint holds, and how many blocks the prompt has, by the first
// plug-in that compared prompts.
func (d *Decision) held(s *State) (held, blocks int) {
	if d.cycle.p == nil {
		return 0, 0
	}
	for _, pl := range d.cycle.p.plugins {
		x, ok := pl.(interface {
			MatchOf(d *Decision, s *State) (matched, total, blockTokens int)
		})
		if ok && d.cycle.p.Guard(pl, func() { held, blocks, _ = x.MatchOf(d, s) }) == nil && blocks > 0 {
			return held, blocks
		}
	}
	return 0, 0
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
	prompt := fmt.Sprintf("%d tokens", e.Tokens)
	if e.Tokens == 1 {
		prompt = "1 token"
	}
	if e.Tokens == 0 {
		prompt = fmt.Sprintf("about %d tokens", e.Estimated)
	} else if e.Estimated != e.Tokens {
		prompt += fmt.Sprintf(" (the picker estimated %d)", e.Estimated)
	}
	fmt.Fprintf(w, "%s\nrequest %s  model %s  prompt %s  priority %d\n", e.verdict(), e.Request, model, prompt,
		e.Priority)
	if e.Pool != "" {
		fmt.Fprintf(w, "its model leads to pool %s\n", e.Pool)
	}
	if e.Picker != "" {
		fmt.Fprintf(w, "decided by %s\n", e.Picker)
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

// verdict returns the decision and its reason on one line.
func (e *Explanation) verdict() string {
	if e.Error != "" {
		return fmt.Sprintf("refused with %d: %s", e.Status, e.Error)
	}
	out := "went to " + e.Destination
	for i := range e.Profiles {
		p := &e.Profiles[i]
		if !p.Primary {
			continue
		}
		out += " (" + strings.Join(p.Picked, ", ") + ")"
		other := slices.IndexFunc(p.Endpoints, func(r ExplainedEndpoint) bool { return !r.Picked })
		switch first := slices.IndexFunc(p.Endpoints, func(r ExplainedEndpoint) bool { return r.Picked }); {
		case first < 0 || len(p.Scorers) == 0:
		case other < 0:
			out += ", the only one left"
		case len(p.Tied) > 1:
			out += fmt.Sprintf(", one of %d with the best total, %.4g", len(p.Tied), p.Endpoints[first].Total)
		default:
			out += fmt.Sprintf(" with a total of %.4g; %s has %.4g", p.Endpoints[first].Total, p.Endpoints[other].Name,
				p.Endpoints[other].Total)
		}
	}
	return out
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
	fits := func(from, to int, totals bool) bool {
		return columns <= 0 || width(p.table(from, to, totals)) <= columns
	}
	for from, last := 0, false; !last; {
		to := min(from+1, len(p.Scorers))
		for to < len(p.Scorers) && fits(from, to+1, false) {
			to++
		}
		last = to == len(p.Scorers) && (to == from || fits(from, to, true))
		if _, err := io.WriteString(w, p.table(from, to, last)); err != nil {
			return err
		}
		from = to
	}
	if err := cmp.Or(p.inputs(w), p.predictions(w)); err != nil {
		return err
	}
	if len(p.Tied) > 1 {
		fmt.Fprintf(w, "  %d endpoints tied for the best total; %s took %s\n", len(p.Tied), p.Picker,
			strings.Join(p.Picked, ", "))
	}
	return nil
}

// table returns the scores of scorers from to to, and the totals if asked.
func (p *ExplainedProfile) table(from, to int, totals bool) string {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  endpoint")
	for _, s := range p.Scorers[from:to] {
		fmt.Fprint(t, "\t", s.Name)
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
			fmt.Fprint(t, "\t", p.text(r, n))
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
	_ = t.Flush() // a Builder takes everything
	return out.String()
}

// inputs writes what scorers read of the endpoints, if anything is known.
func (p *ExplainedProfile) inputs(w io.Writer) error {
	if !slices.ContainsFunc(p.Endpoints, func(r ExplainedEndpoint) bool { return r.Inputs != nil || r.Blocks > 0 }) {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  inputs\twaiting\trunning\tKV in use\tscraped\tprompt held")
	for i := range p.Endpoints[:min(len(p.Endpoints), maxRows)] {
		r := &p.Endpoints[i]
		metrics, held := "-\t-\t-\t-", "-"
		if x := r.Inputs; x != nil {
			metrics = fmt.Sprintf("%d\t%d\t%.1f%%\t%.0f ms before", x.Waiting, x.Running, 100*x.KV, 1e3*x.Age)
		}
		if r.Blocks > 0 {
			held = fmt.Sprintf("%d of %d blocks", r.Held, r.Blocks)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", r.Name, metrics, held)
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

// width returns the length of the longest line.
func width(text string) (n int) {
	for line := range strings.Lines(text) {
		n = max(n, utf8.RuneCountInString(strings.TrimRight(line, " \n")))
	}
	return n
}
