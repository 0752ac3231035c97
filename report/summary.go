package report

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/hops"
	"github.com/windtunnel/windtunnel/report/terminal"
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
	Dropped  int                    `json:"dropped,omitempty"`
	Outcomes map[record.Outcome]int `json:"outcomes"`
	// NotCompleted has ids of the first requests with each other outcome, and of
	// those without one under unfinished.
	NotCompleted map[record.Outcome][]string `json:"notCompleted,omitempty"`
	// Refusals counts the answers that the picker, a sidecar or a model server gave instead
	// of tokens, by "hop: reason".
	Refusals map[string]int `json:"refusals,omitempty"`
	// Incidents are the first 32 of the run.
	Incidents []Incident                         `json:"incidents,omitempty"`
	Hops      map[record.Hop]map[record.Step]int `json:"hops"`
	// Endpoints counts how often each was picked, PrefillServers how many prefill
	// legs each got; those of the pool that got none have a 0.
	Endpoints      map[string]int `json:"endpoints,omitempty"`
	PrefillServers map[string]int `json:"prefillServers,omitempty"`
	Spans          []SpanSummary  `json:"spans,omitempty"`
	// Measures are what the run comes to, with intervals (docs/decide.md), and SLO what
	// makes an answer good, where the scenario says so.
	Measures []Measured `json:"measures,omitempty"`
	SLO      *SLOTold   `json:"slo,omitempty"`
	// WarmUp is for how many seconds of sending the run had to warm up, by MSER-5:
	// Measures leave out what was sent until then.
	WarmUp float64 `json:"warmUpSeconds,omitempty"`
	// ByHand is what somebody sent besides the run's own requests. Nothing else
	// here counts it.
	ByHand *ByHand `json:"byHand,omitempty"`
	// PrefixCache is how much of all prompts the model servers had cached; nil
	// where they have no such cache and found nothing.
	PrefixCache *CacheSummary `json:"prefixCache,omitempty"`
	// Transfers are the KV caches that decode servers fetched; nil where there were none.
	Transfers *TransferSummary `json:"transfers,omitempty"`
	// Predictions is how far predicted latencies were off; nil where nothing predicted
	// any.
	Predictions *PredictionSummary `json:"predictions,omitempty"`
	// IndexLag is each index of KV blocks, compared with the engines, and how
	// far it was behind them.
	IndexLag []IndexSummary `json:"indexLag,omitempty"`
	// Warnings are the parts of the picker that did not get what they asked for.
	Warnings []Warning `json:"warnings,omitempty"`
	// HopTimes are how long the hops of a live run took; nil where nobody measured.
	HopTimes *hops.Times `json:"hopTimes,omitempty"`
	// Load is how full the model servers were; nothing of those that somebody else runs, or
	// that compute no steps.
	Load []LoadSummary `json:"load,omitempty"`
	// Classes are the classes of traffic, and last all of them together; nothing where
	// there is one class without an SLO.
	Classes []ClassSummary `json:"classes,omitempty"`
	// Servers are those of each group, where they come and go or have a price, and Cost what all of
	// them came to.
	Servers []ServersSummary `json:"servers,omitempty"`
	Cost    *CostSummary     `json:"cost,omitempty"`
	// Pools are the run's, where there is more to tell than of all together.
	Pools []PoolSummary `json:"pools,omitempty"`
	// Expectations are the scenario's, if it has any, each with what was found.
	Expectations []Expectation `json:"expectations,omitempty"`
}

// unfinished stands where an outcome would, of requests that have none.
const unfinished record.Outcome = "unfinished"

// ByHand is what somebody sent to the gateway besides the run's own requests.
type ByHand struct {
	Requests int `json:"requests"`
	// Statuses counts them by the HTTP status that they got.
	Statuses map[string]int `json:"statuses,omitempty"`
	// Endpoints counts how often each was picked for them.
	Endpoints map[string]int `json:"endpoints,omitempty"`
}

// Expectation is something that the run had to come to, and whether it did.
type Expectation = record.Expectation

// SpanSummary is the distribution of one span, in seconds. Percentiles are
// right to three digits.
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

// Failed counts the requests that ended in anything but completed, or not at
// all.
func (s Summary) Failed() int {
	return s.Requests - s.Outcomes[record.Completed]
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

// Write prints the summary for people, on lines of so many columns; 0 columns
// never break.
func (s Summary) Write(w io.Writer, color bool, columns int) error {
	s = s.printable()
	l := lines{paint: terminal.Paint(color), columns: columns}
	how := "in " + terminal.Span(s.Duration)
	if s.Interrupted {
		how += ", interrupted"
	}
	l.add("summary", fmt.Sprintf("%s %s, seed %d", counted(s.Requests, "request"), how, s.Seed))
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
			counted(c.PromptTokens, "prompt token")))
	}
	s.Transfers.write(&l)
	s.Predictions.write(&l)
	for i := range s.Classes {
		s.Classes[i].write(&l)
	}
	for _, x := range s.IndexLag {
		x.write(&l)
	}
	for _, x := range s.Warnings {
		x.write(&l)
	}
	for i, e := range s.Expectations {
		label := ""
		if i == 0 {
			label = "expected"
		}
		found := "ok      found " + e.Found
		if !e.OK {
			found = l.paint.Red("MISSED  found " + e.Found)
		}
		l.words(label, []string{fmt.Sprintf("%-14s", e.What), fmt.Sprintf("%-18s", e.Expected), found}, " ")
	}
	s.ByHand.write(&l)
	_, err := io.WriteString(w, l.b.String())
	return err
}

// lines are those of a summary: a label and what it says.
type lines struct {
	b       strings.Builder
	paint   terminal.Paint
	columns int
}

// labelColumns is where what a line says begins.
const labelColumns = 11

func (l *lines) words(label string, words []string, between string) {
	head := l.paint.Bold(fmt.Sprintf("%-9s", label)) + "  "
	l.b.WriteString(terminal.WrapWords(head+words[0], words[1:], between, labelColumns, l.columns) + "\n")
}

// add is a line of prose.
func (l *lines) add(label, text string) { l.words(label, strings.Split(text, " "), " ") }

// list is a line of matters, or none where there are none.
func (l *lines) list(label string, matters []string) {
	if len(matters) > 0 {
		l.words(label, matters, " · ")
	}
}

// outcomeWords says how many requests ended how, and which did not complete.
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
			var labels []string
			for _, id := range ids[:min(len(ids), most)] {
				labels = append(labels, record.Label(id))
			}
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

// measuredFrom is from how many requests on people are shown measures: of fewer the spans
// say as much.
const measuredFrom = 100

// writeMeasures shows what is measured per second, and the latencies' percentiles with
// their intervals.
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

// tell prints what was sent by hand alone.
func (x *ByHand) tell(o Options) error {
	l := lines{paint: terminal.Paint(o.Color), columns: o.Columns}
	x.write(&l)
	_, err := io.WriteString(o.Out, l.b.String())
	return err
}

func (x *ByHand) write(l *lines) {
	if x == nil {
		return
	}
	words := []string{counted(x.Requests, "request") + " besides"}
	for _, status := range slices.Sorted(maps.Keys(x.Statuses)) {
		words = append(words, fmt.Sprintf("status %s %s", status, terminal.Thousands(x.Statuses[status])))
	}
	l.list("by hand", append(words, shares(x.Endpoints)...))
}

// outcomes lists those that happened, known ones first and in their order.
func (s Summary) outcomes() []record.Outcome {
	var out []record.Outcome
	for _, o := range record.Outcomes() {
		if s.Outcomes[o] > 0 {
			out = append(out, o)
		}
	}
	known := len(out)
	for o, n := range s.Outcomes {
		if n > 0 && !slices.Contains(record.Outcomes(), o) {
			out = append(out, o)
		}
	}
	slices.Sort(out[known:])
	return out
}

// hopSteps are the steps whose counts a summary shows for people, with words.
// They are chosen so that equal numbers mean that all is well.
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

// steps says how often each of them happened at a hop.
func (s Summary) steps(hop record.Hop, steps []record.Step) []string {
	var out []string
	for _, step := range steps {
		if n := s.Hops[hop][step]; n > 0 {
			out = append(out, fmt.Sprintf("%s %s", step, terminal.Thousands(n)))
		}
	}
	return out
}

// shares says how many of something each server got, in the order of their
// addresses; of many, what the least and the most were.
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
	least, greatest := names[0], names[0]
	for _, name := range names {
		if servers[name] < servers[least] {
			least = name
		}
		if servers[name] > servers[greatest] {
			greatest = name
		}
	}
	if servers[least] == servers[greatest] {
		return []string{fmt.Sprintf("%d servers, %s each", len(names), terminal.Thousands(servers[least]))}
	}
	return []string{fmt.Sprintf("%d servers", len(names)),
		fmt.Sprintf("least %s %s", least, terminal.Thousands(servers[least])),
		fmt.Sprintf("most %s %s", greatest, terminal.Thousands(servers[greatest]))}
}

// byAddress orders addresses by their numbers, and other names as text.
func byAddress(a, b string) int {
	x, errX := netip.ParseAddrPort(a)
	y, errY := netip.ParseAddrPort(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return x.Compare(y)
}

// counted is a count of things: 1 request, 2,000 requests.
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return terminal.Thousands(n) + " " + what
}
