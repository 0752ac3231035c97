// Package validation compares a scenario in wall time with the same in virtual time: percentiles of spans, and each
// request with itself.
package validation

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/hops"
	"github.com/windtunnel/windtunnel/report/stats"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Result is the result of validate, as --output json prints it.
type Result struct {
	Requests int `json:"requests"`
	// Hops are from a run with another seed, nil without one.
	Hops      *hops.Times `json:"hops,omitempty"`
	Tolerance float64     `json:"tolerancePercent"`
	Spans     []offBy     `json:"spans"`
	// OneTime lists spans that only one of the runs has, with which.
	OneTime  []string  `json:"onlyInOneTime,omitempty"`
	Outcomes []offFrom `json:"outcomes,omitempty"`
	// PerRequest is the difference of each request's own times, for requests that completed in both runs.
	PerRequest []apart `json:"perRequest,omitempty"`
	// Otherwise counts requests with different outcomes, or in one run alone. Ends are the first of them.
	Otherwise int    `json:"otherwise"`
	Ends      []ends `json:"ends,omitempty"`
	// Moved counts requests that went to different servers. Servers are the first of them.
	Moved   int    `json:"moved"`
	Servers []ends `json:"servers,omitempty"`
	Answer  string `json:"answer"`
}

// mostNamed bounds the differing requests that are named.
const mostNamed = 10

// ends is the outcome or the server of one request in both runs, empty where the run lacks it.
type ends struct {
	Request string `json:"request"`
	Live    string `json:"live"`
	Virtual string `json:"virtual"`
}

// apart is the absolute difference of requests' own times, in seconds.
type apart struct {
	Span     string  `json:"span"`
	Requests int     `json:"requests"`
	P50      float64 `json:"p50"`
	P90      float64 `json:"p90"`
	Most     float64 `json:"most"`
	// Request has the largest difference, and Live and Virtual are its times.
	Request string  `json:"request"`
	Live    float64 `json:"live"`
	Virtual float64 `json:"virtual"`
}

// Requests are the requests of a run by number.
type Requests map[int32]*oneRequest

// oneRequest is one request of a run.
type oneRequest struct {
	id, server string
	outcome    record.Outcome
	ended      report.Ended
}

func (r Requests) of(number int32) *oneRequest {
	if r[number] == nil {
		r[number] = &oneRequest{}
	}
	return r[number]
}

// Watch returns a recorder that fills the requests and the tally.
func (r Requests) Watch(t *report.Tally) record.Recorder {
	t.OnEnded(func(e *report.Ended) { r.of(e.Number).ended = *e })
	return record.Tee(t, record.Func(func(e record.Event) {
		picked := e.Hop == record.EPP && e.Step == record.EndpointPicked
		number, ok := record.RequestNumber(e.Request)
		if !ok || !picked && e.Step != record.Finished {
			return
		}
		x := r.of(int32(number))
		if x.id = e.Request; picked {
			x.server, _ = e.Details.Get("name").(string)
		} else {
			x.outcome = report.OutcomeOf(e)
		}
	}))
}

// perToken returns the times per token of the completed requests.
func (r Requests) perToken() (seconds []float64) {
	for _, x := range r {
		if v, ok := x.ended.TPOT(); ok && x.ended.Completed {
			seconds = append(seconds, v)
		}
	}
	return seconds
}

// offBy is one percentile of a span in both runs, in seconds.
type offBy struct {
	Span     string  `json:"span"`
	Quantile string  `json:"quantile"`
	Live     float64 `json:"live"`
	Virtual  float64 `json:"virtual"`
	// Off is how much longer virtual time is, in percent.
	Off  float64 `json:"offPercent"`
	Over bool    `json:"over"`
}

// offFrom is an outcome whose count differs.
type offFrom struct {
	Outcome record.Outcome `json:"outcome"`
	Live    int            `json:"live"`
	Virtual int            `json:"virtual"`
}

// perToken is the name of the span for the mean time between two tokens of a request, at its client.
const perToken = "tpot"

// tokenTimes returns a span of the times per token.
func tokenTimes(seconds []float64) []report.SpanSummary {
	if len(seconds) == 0 {
		return nil
	}
	slices.Sort(seconds)
	at := func(p float64) float64 { return stats.Quantile(seconds, p) }
	return []report.SpanSummary{
		{Name: perToken, Count: len(seconds), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: seconds[len(seconds)-1]}}
}

// Compare compares a run in virtual time with one in wall time. tolerance bounds the difference of a latency, in
// percent.
func Compare(live, virtual report.Summary, liveRequests, virtualRequests Requests, tolerance float64) *Result {
	live.Spans = append(live.Spans, tokenTimes(liveRequests.perToken())...)
	virtual.Spans = append(virtual.Spans, tokenTimes(virtualRequests.perToken())...)
	x := compareTimes(live, virtual, tolerance)
	x.eachRequest(liveRequests, virtualRequests)
	x.answer()
	return x
}

// Off reports whether virtual time is off: outcomes differ, only one run has a span, or a latency at p50 or p90 differs
// by more than the tolerance.
func (x *Result) Off() bool {
	return x.Otherwise > 0 || len(x.over())+len(x.Outcomes)+len(x.OneTime) > 0
}

// compareTimes compares the summaries.
func compareTimes(live, virtual report.Summary, tolerance float64) *Result {
	out := &Result{Requests: live.Requests, Tolerance: tolerance}
	for _, sp := range live.Spans {
		other, ok := virtual.Span(sp.Name)
		if !ok {
			out.OneTime = append(out.OneTime, sp.Name+" live")
			continue
		}
		for _, q := range []string{"p50", "p90", "p99"} {
			x := offBy{Span: sp.Name, Quantile: q, Live: sp.Quantile(q), Virtual: other.Quantile(q)}
			if x.Live > 0 {
				x.Off = math.Round(1e4*(x.Virtual-x.Live)/x.Live) / 100
			}
			// A model cannot be better than the timers and the scheduler of the live run. A time per token is a mean
			// over many.
			least := 0.001
			if sp.Name == perToken {
				least = 0.0001
			}
			x.Over = math.Abs(x.Off) > tolerance && math.Abs(x.Virtual-x.Live) > least
			out.Spans = append(out.Spans, x)
		}
	}
	for _, sp := range virtual.Spans {
		if _, ok := live.Span(sp.Name); !ok {
			out.OneTime = append(out.OneTime, sp.Name+" in virtual time")
		}
	}
	for _, k := range record.Outcomes() {
		if a, b := live.Outcomes[k], virtual.Outcomes[k]; a != b {
			out.Outcomes = append(out.Outcomes, offFrom{k, a, b})
		}
	}
	return out
}

// eachRequest compares each request with the same request of the other run.
func (x *Result) eachRequest(live, virtual Requests) {
	numbers := maps.Clone(live)
	maps.Copy(numbers, virtual)
	spans := []struct {
		name string
		of   func(e *report.Ended) (seconds float64, ok bool)
	}{
		{"total", func(e *report.Ended) (float64, bool) { return e.E2E.Seconds(), true }},
		{"ttft", func(e *report.Ended) (float64, bool) { return e.TTFT.Seconds(), e.TTFT > 0 }},
		{perToken, (*report.Ended).TPOT},
	}
	list, off := make([]apart, len(spans)), make([][]float64, len(spans))
	add := func(to *[]ends, id, a, b string) {
		if len(*to) < mostNamed {
			*to = append(*to, ends{id, a, b})
		}
	}
	for _, n := range slices.Sorted(maps.Keys(numbers)) {
		a, b := live.of(n), virtual.of(n)
		id := cmp.Or(a.id, b.id)
		if a.outcome != b.outcome {
			x.Otherwise++
			add(&x.Ends, id, string(a.outcome), string(b.outcome))
		}
		if a.server != b.server {
			x.Moved++
			add(&x.Servers, id, a.server, b.server)
		}
		if !a.ended.Completed || !b.ended.Completed {
			continue
		}
		for i := range spans {
			v, okA := spans[i].of(&a.ended)
			w, okB := spans[i].of(&b.ended)
			if !okA || !okB {
				continue
			}
			d := report.Digits(math.Abs(w - v))
			if off[i] = append(off[i], d); d >= list[i].Most {
				list[i] = apart{Most: d, Request: id, Live: report.Digits(v), Virtual: report.Digits(w)}
			}
		}
	}
	for i, l := range list {
		if l.Requests = len(off[i]); l.Requests > 0 {
			slices.Sort(off[i])
			l.Span, l.P50, l.P90 = spans[i].name, stats.Quantile(off[i], 0.5), stats.Quantile(off[i], 0.9)
			x.PerRequest = append(x.PerRequest, l)
		}
	}
}

// over returns the latencies at p50 and p90 that differ by more than the tolerance.
func (x *Result) over() (list []string) {
	for _, s := range x.Spans {
		if s.Over && s.Quantile != "p99" {
			list = append(list, fmt.Sprintf("%s %s (%+.1f%%)", s.Span, s.Quantile, s.Off))
		}
	}
	return list
}

func (x *Result) answer() {
	var parts []string
	if list := x.over(); len(list) > 0 {
		parts = append(parts, fmt.Sprintf("virtual time is off by more than %v%% and 1 ms (of %s 0.1 ms) in %s",
			x.Tolerance, perToken, strings.Join(list, ", ")))
	} else {
		parts = append(parts, fmt.Sprintf(
			"virtual time is within %v%% or 1 ms (of %s 0.1 ms) of every latency at p50 and p90", x.Tolerance,
			perToken))
	}
	for _, k := range x.Outcomes {
		parts = append(parts, fmt.Sprintf("%d ended %s live and %d in virtual time", k.Live, k.Outcome, k.Virtual))
	}
	for _, s := range x.OneTime {
		parts = append(parts, "there is a span "+s+" and none in the other")
	}
	if x.Otherwise > 0 {
		e := x.Ends[0]
		parts = append(parts, fmt.Sprintf(
			"%d of %d requests ended otherwise, the first %s: %s live, %s in virtual time", x.Otherwise, x.Requests,
			e.Request, cmp.Or(e.Live, "not at all"), cmp.Or(e.Virtual, "not at all")))
	}
	if x.Moved > 0 {
		e := x.Servers[0]
		parts = append(parts, fmt.Sprintf(
			"%d of %d requests went to another server, the first %s: %s live, %s in virtual time", x.Moved, x.Requests,
			e.Request, cmp.Or(e.Live, "to none"), cmp.Or(e.Virtual, "to none")))
	}
	x.Answer = strings.Join(parts, "; ")
}

// Write prints the result for people, on lines of so many columns; 0 columns never break.
func (x *Result) Write(to io.Writer, columns int) error {
	if _, err := io.WriteString(to, terminal.Wrap("answer   "+x.Answer, 9, columns)+"\n\n"); err != nil {
		return err
	}
	if x.Hops != nil {
		if err := x.Hops.Write(to); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "span\t\tlive\tvirtual\toff\t\t\n")
	m := report.Measure{Unit: report.Seconds}
	for _, s := range x.Spans {
		note := ""
		if s.Over {
			note = "differs"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%+.1f%%\t%s\t\n", s.Span, s.Quantile, m.Text(s.Live), m.Text(s.Virtual), s.Off,
			note)
	}
	if len(x.PerRequest) > 0 {
		fmt.Fprint(w, "\nby request\tcount\tp50\tp90\tat most\tof: live, virtual\t\n")
	}
	for _, s := range x.PerRequest {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s: %s, %s\t\n", s.Span, s.Requests, m.Text(s.P50),
			m.Text(s.P90), m.Text(s.Most), s.Request, m.Text(s.Live), m.Text(s.Virtual))
	}
	return w.Flush()
}
