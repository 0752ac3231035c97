package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/hops"
	"github.com/windtunnel/windtunnel/report/overtime"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Summary is the result of a run. Times are seconds.
type Summary struct {
	Scenario string `json:"scenario,omitempty"`
	Seed     uint64 `json:"seed"`
	// Interrupted says that the run was stopped before its last request.
	Interrupted bool `json:"interrupted,omitempty"`
	// Duration is the time of the last event since the run began.
	Duration float64 `json:"duration"`
	// Requests counts the requests sent, and Unfinished those of them without an outcome.
	Requests   int `json:"requests"`
	Unfinished int `json:"unfinished"`
	// Dropped counts requests that were dropped from memory before they had ended, because too many were in flight at
	// once. Their outcomes are counted, their times are not.
	Dropped  int                    `json:"dropped,omitempty"`
	Outcomes map[record.Outcome]int `json:"outcomes"`
	// NotCompleted has the ids of the first requests with each other outcome, and of those without one under
	// unfinished.
	NotCompleted map[record.Outcome][]string `json:"notCompleted,omitempty"`
	// Refusals counts the answers of the picker, a sidecar or a model server without tokens, by "hop: reason".
	Refusals map[string]int `json:"refusals,omitempty"`
	// Incidents are the first 32 of the run.
	Incidents []Incident                         `json:"incidents,omitempty"`
	Hops      map[record.Hop]map[record.Step]int `json:"hops"`
	// Endpoints counts how often each endpoint was picked, PrefillServers the prefill legs of each. Idle servers of the
	// pool have a 0.
	Endpoints      map[string]int `json:"endpoints,omitempty"`
	PrefillServers map[string]int `json:"prefillServers,omitempty"`
	Spans          []SpanSummary  `json:"spans,omitempty"`
	// Measures are the run's measures with intervals (docs/decide.md). SLO is the workload's, nil without one.
	Measures []Measured         `json:"measures,omitempty"`
	SLO      *record.SLOSummary `json:"slo,omitempty"`
	// WarmUp is how long the run took to warm up, in seconds. Measures leave out the requests that ended before.
	WarmUp float64 `json:"warmUpSeconds,omitempty"`
	// ByHand reports requests that did not come from the run's own client. No other field counts them.
	ByHand *ByHand `json:"byHand,omitempty"`
	// PrefixCache reports how much of all prompts the model servers had cached. It is nil where they have no such cache
	// and found nothing.
	PrefixCache *CacheSummary `json:"prefixCache,omitempty"`
	// Transfers are the KV caches that decode servers fetched, nil without any.
	Transfers *TransferSummary `json:"transfers,omitempty"`
	// Predictions reports how far predicted latencies were off, nil without predictions.
	Predictions *PredictionSummary `json:"predictions,omitempty"`
	// IndexLag compares each index of KV blocks with the engines, and reports its lag.
	IndexLag []IndexSummary `json:"indexLag,omitempty"`
	// Warnings are the parts of the picker whose calls failed.
	Warnings []Warning `json:"warnings,omitempty"`
	// HopTimes are the times of the hops of a live run, nil where they were not measured.
	HopTimes *hops.Times `json:"hopTimes,omitempty"`
	// Load is how busy and full the model servers were. External servers, and those that compute no steps, have none.
	Load []LoadSummary `json:"load,omitempty"`
	// Classes are the classes of traffic, and last all classes together. It is nil for one class without an SLO.
	Classes []ClassSummary `json:"classes,omitempty"`
	// Servers are the servers of each group, where they come and go or have a price. Cost is the cost of all.
	Servers []ServersSummary `json:"servers,omitempty"`
	// MissedSLO counts the completed requests that missed each bound of SLO: ttft, tpot or e2e. Classes have their own.
	MissedSLO map[string]int `json:"missed,omitempty"`
	// OverTime shows when servers were too few, nil where neither their number nor the share of good requests changes.
	OverTime *overtime.Run `json:"overTime,omitempty"`
	Cost     *CostSummary  `json:"cost,omitempty"`
	// Pools are the run's pools, where they differ from the whole run.
	Pools []PoolSummary `json:"pools,omitempty"`
	// Expectations are the scenario's, each with the value that was found.
	Expectations []Expectation `json:"expectations,omitempty"`
}

// unfinished stands in place of an outcome for requests without one.
const unfinished record.Outcome = "unfinished"

// ByHand counts requests to the gateway that did not come from the run's own client.
type ByHand struct {
	Requests int `json:"requests"`
	// Statuses counts the requests by HTTP status.
	Statuses map[string]int `json:"statuses,omitempty"`
	// Endpoints counts how often each was picked for them.
	Endpoints map[string]int `json:"endpoints,omitempty"`
}

// Expectation is a condition of the scenario, and whether the run met it.
type Expectation = record.Expectation

// SpanSummary is the distribution of one span, in seconds. Percentiles are right to three digits.
type SpanSummary struct {
	Name  string  `json:"name"`
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
	// Slowest is the id of the request that took Max.
	Slowest string `json:"slowest,omitempty"`
}

// Failed counts the requests that did not complete.
func (s Summary) Failed() int { return s.Requests - s.Outcomes[record.Completed] }

// Missed counts the expectations that were not met.
func (s Summary) Missed() int {
	return count(s.Expectations, func(e *Expectation) bool { return !e.OK })
}

// Span returns the span with this name, and whether it was measured.
func (s Summary) Span(name string) (SpanSummary, bool) {
	for _, sp := range s.Spans {
		if sp.Name == name {
			return sp, true
		}
	}
	return SpanSummary{}, false
}

// Quantile returns p50, p90, p99 or max of the span, in seconds.
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

// Write prints the summary for people, on lines of so many columns. With 0 columns, lines never break.
func (s Summary) Write(w io.Writer, color bool, columns int) error {
	s = s.printable()
	l := lines{paint: terminal.Paint(color), columns: columns}
	how := "in " + terminal.Span(s.Duration)
	if s.Interrupted {
		how += ", interrupted"
	}
	l.add("summary", fmt.Sprintf("%s %s, seed %d", terminal.Counted(s.Requests, "request"), how, s.Seed))
	l.list("outcomes", s.outcomeWords(l.paint))
	if s.Dropped > 0 {
		l.add("dropped", terminal.Thousands(s.Dropped)+
			" of them: too many were in flight at once, and their times are not among those below")
	}
	s.writeTrouble(&l)
	for _, h := range hopSteps {
		l.list(string(h.hop), s.steps(h.hop, h.steps))
	}
	l.list("endpoints", shares(s.Endpoints))
	l.list("prefill", shares(s.PrefillServers))
	s.writeSpans(&l)
	s.writeMeasures(&l)
	s.writePools(&l)
	s.writeServers(&l)
	s.writeLoad(&l)
	if c := s.PrefixCache; c != nil {
		l.add("kv cache", fmt.Sprintf("%.1f%% of %s were cached where they went", 100*c.HitRate,
			terminal.Counted(c.PromptTokens, "prompt token")))
	}
	s.Transfers.write(&l)
	s.Predictions.write(&l)
	for i := range s.Classes {
		s.Classes[i].write(&l)
	}
	l.list("missed", missedWords(s.MissedSLO))
	for i, line := range s.OverTime.Lines() {
		l.words(first(i, "over time"), []string{line}, " ")
	}
	for _, x := range s.IndexLag {
		x.write(&l)
	}
	for _, x := range s.Warnings {
		x.write(&l)
	}
	for i, e := range s.Expectations {
		found := "ok      found " + e.Found
		if !e.OK {
			found = l.paint.Red("MISSED  found " + e.Found)
		}
		l.words(first(i, "expected"), []string{fmt.Sprintf("%-14s", e.What), fmt.Sprintf("%-18s", e.Expected), found},
			" ")
	}
	s.ByHand.write(&l)
	_, err := io.WriteString(w, l.b.String())
	return err
}

// lines collects the lines of a summary, each with a label.
type lines struct {
	b       strings.Builder
	paint   terminal.Paint
	columns int
}

// labelColumns is the column where the text of a line begins.
const labelColumns = 11

func (l *lines) words(label string, words []string, between string) {
	head := l.paint.Bold(fmt.Sprintf("%-9s", label)) + "  "
	l.b.WriteString(terminal.WrapWords(head+words[0], words[1:], between, labelColumns, l.columns) + "\n")
}

// add adds a line of prose.
func (l *lines) add(label, text string) { l.words(label, strings.Split(text, " "), " ") }

// first returns the label of the first of several lines, and "" for the others.
func first(i int, label string) string {
	if i > 0 {
		return ""
	}
	return label
}

// list adds a line of items, or none without items.
func (l *lines) list(label string, matters []string) {
	if len(matters) > 0 {
		l.words(label, matters, " · ")
	}
}

// outcomeWords returns how many requests ended with each outcome, and the ids of some that did not complete.
func (s Summary) outcomeWords(p terminal.Paint) []string {
	var out []string
	add := func(o record.Outcome, n int) {
		text := fmt.Sprintf("%s %s", o, terminal.Thousands(n))
		if o == record.Completed {
			out = append(out, text)
			return
		}
		const most = 3
		if ids := s.NotCompleted[o]; len(ids) > 0 {
			labels := terminal.Texts(min(len(ids), most), func(i int) string { return record.Label(ids[i]) })
			more := ""
			if n > len(labels) {
				more = " …"
			}
			text += " (" + strings.Join(labels, " ") + more + ")"
		}
		out = append(out, p.Red(text))
	}
	for _, o := range s.outcomes() {
		add(o, s.Outcomes[o])
	}
	if s.Unfinished > 0 {
		add(unfinished, s.Unfinished)
	}
	if len(out) == 0 {
		out = []string{"none"}
	}
	return out
}

func (s Summary) writeSpans(l *lines) {
	if len(s.Spans) == 0 {
		return
	}
	l.b.WriteString(l.paint.Bold("span     ") +
		fmt.Sprintf("  %7s %8s %8s %8s %8s\n", "count", "p50", "p90", "p99", "max"))
	for _, sp := range s.Spans {
		row := fmt.Sprintf("  %-9s%7s %8s %8s %8s %8s", sp.Name, terminal.Thousands(sp.Count), terminal.Span(sp.P50),
			terminal.Span(sp.P90), terminal.Span(sp.P99), terminal.Span(sp.Max))
		if whose := "  " + l.paint.Dim(record.Label(sp.Slowest)); sp.Max > 0 && sp.Count > 1 &&
			(l.columns == 0 || terminal.Columns(row+whose) <= l.columns) {
			row += whose
		}
		l.b.WriteString(row + "\n")
	}
}

// measuredFrom is the least number of requests for which measures are printed. Of fewer, the spans show as much.
const measuredFrom = 100

// writeMeasures adds the rates, and the latencies' percentiles with their intervals.
func (s Summary) writeMeasures(l *lines) {
	if s.Requests < measuredFrom || len(s.Measures) == 0 {
		return
	}
	of := map[string]*Measured{}
	for i := range s.Measures {
		of[s.Measures[i].Measure] = &s.Measures[i]
	}
	var rates []string
	for _, name := range []string{"requests/s", "input tokens/s", "output tokens/s", "goodput", "attainment",
		"in flight"} {
		if v := of[name]; v != nil {
			m := Measure{Unit: v.Unit}
			rates = append(rates, m.Text(v.Value)+" "+name)
		}
	}
	if s.WarmUp > 0 {
		l.add("warm-up", fmt.Sprintf("%s, which rates and latency leave out", terminal.Span(s.WarmUp)))
	}
	l.list("rates", rates)
	names := []string{"p50", "p90", "p95", "p99"}
	head, why := l.paint.Bold("latency  ")+"  ", map[string]bool{}
	for _, name := range names {
		head += fmt.Sprintf("%-17s", name)
	}
	l.b.WriteString(strings.TrimRight(head, " ") + "\n")
	for _, family := range []string{"ttft", "tpot", "itl", "e2e"} {
		row := fmt.Sprintf("  %-9s", family)
		for _, name := range names {
			cell := ""
			if v := of[family+" "+name]; v != nil {
				cell = v.Interval()
				why[v.Why] = true
			}
			row += fmt.Sprintf("%-17s", cell)
		}
		if v := of[family+" mean"]; family == "itl" && v != nil && of["itl p50"] == nil {
			row = fmt.Sprintf("  %-9s%s on average", family, v.Interval())
			why[v.Why] = true
		}
		if row = strings.TrimRight(row, " "); len(row) > labelColumns {
			l.b.WriteString(row + "\n")
		}
	}
	reason := "the run is too short; --output json says what each needs, and windtunnel sweep --replications 10 " +
		"plays several"
	for _, text := range []string{unsettled, scaled} {
		if why[text] {
			reason = text
		}
	}
	if delete(why, ""); len(why) > 0 {
		l.add("?", "no interval: "+reason)
	}
}

// print prints the line about requests by hand alone.
func (x *ByHand) print(o Options) error {
	l := lines{paint: terminal.Paint(o.Color), columns: o.Columns}
	x.write(&l)
	_, err := io.WriteString(o.Out, l.b.String())
	return err
}

func (x *ByHand) write(l *lines) {
	if x == nil {
		return
	}
	words := []string{terminal.Counted(x.Requests, "request") + " besides"}
	for _, status := range slices.Sorted(maps.Keys(x.Statuses)) {
		words = append(words, fmt.Sprintf("status %s %s", status, terminal.Thousands(x.Statuses[status])))
	}
	l.list("by hand", append(words, shares(x.Endpoints)...))
}

// outcomes lists the outcomes that occurred, the known ones first.
func (s Summary) outcomes() []record.Outcome {
	known := record.Outcomes()
	rank := func(o record.Outcome) int {
		if i := slices.Index(known, o); i >= 0 {
			return i
		}
		return len(known)
	}
	list := slices.SortedFunc(maps.Keys(s.Outcomes), func(a, b record.Outcome) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a, b))
	})
	return slices.DeleteFunc(list, func(o record.Outcome) bool { return s.Outcomes[o] <= 0 })
}

// hopSteps are the steps whose counts a summary prints. They are chosen so that equal numbers mean that all is well.
var hopSteps = []struct {
	hop   record.Hop
	steps []record.Step
}{
	{record.Client, []record.Step{record.RequestSent, record.LastTokenReceived, record.ClientLeft}},
	{record.Envoy, []record.Step{record.Logged}},
	{record.EPP, []record.Step{record.RequestReceived, record.Part1Sent, record.RequestPassed, record.Part2Sent,
		record.Answered,
		record.StreamFailed}},
	{record.Sidecar, []record.Step{record.RequestReceived}},
	{record.Server, []record.Step{record.Part1Received, record.RequestReceived, record.Part2Received,
		record.LastTokenSent,
		record.Violation, record.Rejected, record.Aborted}},
}

// steps returns how often each of the steps happened at a hop.
func (s Summary) steps(hop record.Hop, steps []record.Step) []string {
	var out []string
	for _, step := range steps {
		if n := s.Hops[hop][step]; n > 0 {
			out = append(out, fmt.Sprintf("%s %s", step, terminal.Thousands(n)))
		}
	}
	return out
}

// shares returns how many requests each server received, in the order of addresses. For many servers, it returns the
// least and the most.
func shares(servers map[string]int) []string {
	names := slices.SortedFunc(maps.Keys(servers), byAddress)
	const most = 8
	if len(names) <= most {
		out := make([]string, 0, len(names))
		for _, name := range names {
			out = append(out, fmt.Sprintf("%s %s", name, terminal.Thousands(servers[name])))
		}
		return out
	}
	byCount := func(a, b string) int { return cmp.Compare(servers[a], servers[b]) }
	least, greatest := slices.MinFunc(names, byCount), slices.MaxFunc(names, byCount)
	if servers[least] == servers[greatest] {
		return []string{fmt.Sprintf("%d servers, %s each", len(names), terminal.Thousands(servers[least]))}
	}
	return []string{fmt.Sprintf("%d servers", len(names)),
		fmt.Sprintf("least %s %s", least, terminal.Thousands(servers[least])),
		fmt.Sprintf("most %s %s", greatest, terminal.Thousands(servers[greatest]))}
}

// byAddress orders addresses by number, and other names as text.
func byAddress(a, b string) int {
	x, errX := netip.ParseAddrPort(a)
	y, errY := netip.ParseAddrPort(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return x.Compare(y)
}
