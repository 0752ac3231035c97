package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/flow"
)

// Summary is what a run came to. Times are seconds.
type Summary struct {
	Scenario string `json:"scenario,omitempty"`
	Seed     uint64 `json:"seed"`
	// Interrupted says that the run was stopped before its last request.
	Interrupted bool `json:"interrupted,omitempty"`
	// Duration is the time of the last event since the run began.
	Duration float64 `json:"duration"`
	// Requests counts those sent; Unfinished those of them without an outcome.
	Requests   int `json:"requests"`
	Unfinished int `json:"unfinished"`
	// Dropped counts requests that were forgotten before they had ended, because
	// too many were in flight at once: what came of them is counted, and how long
	// it took is not.
	Dropped  int                            `json:"dropped,omitempty"`
	Outcomes map[flow.Outcome]int           `json:"outcomes"`
	Hops     map[flow.Hop]map[flow.Step]int `json:"hops"`
	// Endpoints counts how often each was picked.
	Endpoints map[string]int `json:"endpoints,omitempty"`
	Spans     []SpanSummary  `json:"spans,omitempty"`
	// PrefixCache is how much of all prompts the model servers had cached; nil
	// where that was nothing.
	PrefixCache *CacheSummary `json:"prefixCache,omitempty"`
	// IndexLag is each index of KV blocks, compared with the engines, and how
	// far it was behind them.
	IndexLag []IndexSummary `json:"indexLag,omitempty"`
	// Warnings are the parts of the picker that did not get what they asked for.
	Warnings []Warning `json:"warnings,omitempty"`
	// HopTimes are how long the hops of a live run took; nil where nobody measured.
	HopTimes *HopTimes `json:"hopTimes,omitempty"`
	// Expectations are the scenario's, if it has any, each with what was found.
	Expectations []Expectation `json:"expectations,omitempty"`
}

// Expectation is something that the run had to come to, and whether it did.
type Expectation struct {
	What     string `json:"what"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
	OK       bool   `json:"ok"`
}

// SpanSummary is the distribution of one span, in seconds. Percentiles are
// right to three digits.
type SpanSummary struct {
	Name  string  `json:"name"`
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Failed counts the requests that ended in anything but completed, or not at
// all.
func (s Summary) Failed() int {
	return s.Requests - s.Outcomes[flow.Completed]
}

// Missed counts the expectations that were not met.
func (s Summary) Missed() int {
	n := 0
	for _, e := range s.Expectations {
		if !e.OK {
			n++
		}
	}
	return n
}

// Span is the span of this name, and whether it was measured.
func (s Summary) Span(name string) (SpanSummary, bool) {
	for _, sp := range s.Spans {
		if sp.Name == name {
			return sp, true
		}
	}
	return SpanSummary{}, false
}

// Quantile is p50, p90, p99 or max of the span, in seconds.
func (s SpanSummary) Quantile(name string) float64 {
	switch name {
	case "p50":
		return s.P50
	case "p90":
		return s.P90
	case "p99":
		return s.P99
	}
	return s.Max
}

// Write prints the summary for people.
func (s Summary) Write(w io.Writer, color bool) error {
	s = s.printable()
	p := paint{color}
	var b strings.Builder
	how := "in " + span(s.Duration)
	if s.Interrupted {
		how += ", interrupted"
	}
	fmt.Fprintf(&b, "%s  %s %s %s, seed %d\n", p.bold("summary  "), thousands(s.Requests), plural(s.Requests, "request", "requests"), how, s.Seed)

	var outcomes []string
	for _, o := range s.outcomes() {
		text := fmt.Sprintf("%s %s", o, thousands(s.Outcomes[o]))
		if o != flow.Completed {
			text = p.red(text)
		}
		outcomes = append(outcomes, text)
	}
	if s.Unfinished > 0 {
		outcomes = append(outcomes, p.red("unfinished "+thousands(s.Unfinished)))
	}
	if len(outcomes) == 0 {
		outcomes = []string{"none"}
	}
	fmt.Fprintf(&b, "%s  %s\n", p.bold("outcomes "), strings.Join(outcomes, " · "))
	if s.Dropped > 0 {
		fmt.Fprintf(&b, "%s  %s of them: too many were in flight at once, and their times are not among those below\n", p.bold("dropped  "), thousands(s.Dropped))
	}
	for _, line := range s.hops() {
		fmt.Fprintf(&b, "%s  %s\n", p.bold(fmt.Sprintf("%-9s", line[0])), line[1])
	}
	if len(s.Endpoints) > 0 {
		fmt.Fprintf(&b, "%s  %s\n", p.bold("endpoints"), s.endpoints())
	}
	if len(s.Spans) > 0 {
		fmt.Fprintf(&b, "%s  %7s %9s %9s %9s %9s\n", p.bold("span     "), "count", "p50", "p90", "p99", "max")
		for _, sp := range s.Spans {
			fmt.Fprintf(&b, "  %-9s%7s %9s %9s %9s %9s\n", sp.Name, thousands(sp.Count), span(sp.P50), span(sp.P90), span(sp.P99), span(sp.Max))
		}
	}
	if c := s.PrefixCache; c != nil {
		fmt.Fprintf(&b, "%s  %.1f%% of %s prompt tokens were cached where they went\n", p.bold("kv cache "), 100*c.HitRate, thousands(c.PromptTokens))
	}
	for _, x := range s.IndexLag {
		x.write(&b, p)
	}
	for _, x := range s.Warnings {
		x.write(&b, p)
	}
	for i, e := range s.Expectations {
		label := ""
		if i == 0 {
			label = "expected"
		}
		found := "ok      found " + e.Found
		if !e.OK {
			found = p.red("MISSED  found " + e.Found)
		}
		fmt.Fprintf(&b, "%s  %-14s %-18s %s\n", p.bold(fmt.Sprintf("%-9s", label)), e.What, e.Expected, found)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// outcomes lists those that happened, known ones first and in their order.
func (s Summary) outcomes() []flow.Outcome {
	var out []flow.Outcome
	for _, o := range flow.Outcomes() {
		if s.Outcomes[o] > 0 {
			out = append(out, o)
		}
	}
	known := len(out)
	for o, n := range s.Outcomes {
		if n > 0 && !slices.Contains(flow.Outcomes(), o) {
			out = append(out, o)
		}
	}
	slices.Sort(out[known:])
	return out
}

// hopSteps are the steps whose counts a summary shows for people, with words.
// They are chosen so that equal numbers mean that all is well.
var hopSteps = []struct {
	hop   flow.Hop
	steps []flow.Step
}{
	{flow.Client, []flow.Step{flow.RequestSent, flow.LastTokenReceived, flow.ClientLeft}},
	{flow.Envoy, []flow.Step{flow.Logged}},
	{flow.EPP, []flow.Step{flow.RequestReceived, flow.Part1Sent, flow.RequestPassed, flow.Part2Sent, flow.Answered, flow.StreamFailed}},
	{flow.Sidecar, []flow.Step{flow.RequestReceived}},
	{flow.Server, []flow.Step{flow.Part1Received, flow.RequestReceived, flow.Part2Received, flow.LastTokenSent, flow.Violation, flow.Rejected, flow.Aborted}},
}

func (s Summary) hops() [][2]string {
	var out [][2]string
	for _, h := range hopSteps {
		var parts []string
		for _, step := range h.steps {
			if n := s.Hops[h.hop][step]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s %s", step, thousands(n)))
			}
		}
		if len(parts) > 0 {
			out = append(out, [2]string{string(h.hop), strings.Join(parts, " · ")})
		}
	}
	return out
}

// endpoints prints how often each was picked; of many, the ends of the list.
func (s Summary) endpoints() string {
	names := make([]string, 0, len(s.Endpoints))
	for name := range s.Endpoints {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if s.Endpoints[a] != s.Endpoints[b] {
			return s.Endpoints[b] - s.Endpoints[a]
		}
		return strings.Compare(a, b)
	})
	const most = 6
	show := names
	if len(names) > most {
		show = append(slices.Clone(names[:most-1]), names[len(names)-1])
	}
	parts := make([]string, 0, len(show)+1)
	for i, name := range show {
		if len(names) > most && i == most-1 {
			parts = append(parts, fmt.Sprintf("(%d more)", len(names)-most))
		}
		parts = append(parts, fmt.Sprintf("%s %s", name, thousands(s.Endpoints[name])))
	}
	return strings.Join(parts, " · ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
