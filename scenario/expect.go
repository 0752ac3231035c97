package scenario

import (
	"math"
	"time"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario/limit"
)

// Expectations are what a run must come to. A run that misses one fails, with
// its own exit code, so that a pipeline can tell.
type Expectations struct {
	// How many requests may end in each outcome, as counts or shares of all requests. Outcomes that are not named here
	// may be any.
	Outcomes OutcomeExpectations `json:"outcomes"`
	// The most that spans of a request's life may take.
	Spans SpanExpectations `json:"spans"`
	// Limits of any measure that the summary has.
	Measures []limit.Limit `json:"measures" max:"64"`
	// Limits of any other number of the summary, by its names in --output json, such as classes[chat].attainment >=
	// 0.95 or refusals[epp: queue full] <= 3: a list's entry is named by its name, and what a map does not have counts
	// as 0.
	Figures []limit.Figure `json:"figures" max:"64"`
}

// OutcomeExpectations are amounts of requests by outcome.
type OutcomeExpectations struct {
	// Requests answered wholly, and where held with the metadata that was made for them.
	Completed limit.Amount `json:"completed"`
	// Requests refused with a 4xx other than 429.
	Refused limit.Amount `json:"refused"`
	// Requests refused with a 429.
	Overloaded limit.Amount `json:"overloaded"`
	// Requests answered with a 502 or 503.
	Unavailable limit.Amount `json:"unavailable"`
	// Requests answered with a 504, or given up at the client's time limit.
	TimedOut limit.Amount `json:"timed_out"`
	// Requests answered with another 5xx, or with an error inside a 2xx.
	ServerError limit.Amount `json:"server_error"`
	// Requests whose connection broke or whose answer was cut short.
	Broken limit.Amount `json:"broken"`
	// Requests for which the held-open contract was broken.
	Violated limit.Amount `json:"violated"`
	// Requests that the client left on purpose.
	Left limit.Amount `json:"left"`
}

// SpanExpectations are limits by span.
type SpanExpectations struct {
	// Request sent to last token, at the client.
	Total Quantiles `json:"total"`
	// Request sent to first token, at the client.
	TTFT Quantiles `json:"ttft"`
	// Request whole at the EPP to endpoint picked.
	Pick Quantiles `json:"pick"`
	// Part 1 sent to part 2 sent, at the EPP.
	Hold Quantiles `json:"hold"`
	// Request received to prefill started, at the prefill server of a prefill leg.
	QueueP Quantiles `json:"queueP"`
	// Prefill started to finished, at the prefill server of a prefill leg.
	PrefillP Quantiles `json:"prefillP"`
	// Request received to prefill started, at the model server.
	Queue Quantiles `json:"queue"`
	// Prefill started to finished.
	Prefill Quantiles `json:"prefill"`
	// Decode started to last token sent, at the model server.
	Decode Quantiles `json:"decode"`
}

// Quantiles are limits of a span's distribution; zero is no limit.
type Quantiles struct {
	// The most that half of the requests may take.
	P50 time.Duration `json:"p50" above:"0s" max:"24h"`
	// The most that nine in ten may take.
	P90 time.Duration `json:"p90" above:"0s" max:"24h"`
	// The most that 99 in 100 may take.
	P99 time.Duration `json:"p99" above:"0s" max:"24h"`
	// The most that any may take.
	Max time.Duration `json:"max" above:"0s" max:"24h"`
}

// Check compares the expectations with a run, in the order of the fields. It returns nothing where nothing is expected.
// figure returns a number of the run's summary by its path in JSON (report.Summary.Figure), false where the run has
// none.
func (e *Expectations) Check(figure func(path ...string) (float64, bool)) []record.Expectation {
	var out []record.Expectation
	add := func(what, expected string, found func(v float64) (text string, ok bool), path ...string) {
		x := record.Expectation{What: what, Expected: expected, Found: "never measured"}
		if v, measured := figure(path...); measured {
			x.Found, x.OK = found(v)
		}
		out = append(out, x)
	}
	for _, o := range e.Outcomes.list() {
		if o.amount.Given {
			add(string(o.outcome), o.amount.String(), func(n float64) (string, bool) {
				requests, _ := figure("requests")
				return o.amount.Holds(int(n), int(requests))
			}, "outcomes", string(o.outcome))
		}
	}
	for _, s := range e.Spans.list() {
		for _, q := range s.limits.list() {
			if q.limit > 0 {
				add(s.span+" "+q.quantile, "at most "+q.limit.String(), func(seconds float64) (string, bool) {
					d := time.Duration(math.Round(seconds * 1e9))
					return d.String(), d <= q.limit
				}, "spans", s.span, q.quantile)
			}
		}
	}
	for _, l := range e.Measures {
		add(l.Measure, l.Words(), func(v float64) (string, bool) { return l.Text(v), l.Holds(v) },
			"measures", l.Measure, "value")
	}
	for _, f := range e.Figures {
		add(f.Name, f.Words(), func(v float64) (string, bool) { return f.Text(v), f.Holds(v) }, f.Path...)
	}
	return out
}

type outcomeAmount struct {
	outcome record.Outcome
	amount  limit.Amount
}

func (o *OutcomeExpectations) list() []outcomeAmount {
	return []outcomeAmount{{record.Completed, o.Completed}, {record.Refused, o.Refused},
		{record.Overloaded, o.Overloaded},
		{record.Unavailable, o.Unavailable}, {record.TimedOut, o.TimedOut}, {record.ServerError, o.ServerError},
		{record.Broken, o.Broken}, {record.Violated, o.Violated}, {record.Left, o.Left}}
}

type spanLimits struct {
	span   string
	limits Quantiles
}

func (s *SpanExpectations) list() []spanLimits {
	return []spanLimits{{"total", s.Total}, {"ttft", s.TTFT}, {"pick", s.Pick}, {"hold", s.Hold},
		{"queueP", s.QueueP}, {"prefillP", s.PrefillP}, {"queue", s.Queue}, {"prefill", s.Prefill},
		{"decode", s.Decode}}
}

type quantileLimit struct {
	quantile string
	limit    time.Duration
}

func (q Quantiles) list() []quantileLimit {
	return []quantileLimit{{"p50", q.P50}, {"p90", q.P90}, {"p99", q.P99}, {"max", q.Max}}
}
