package scenario

import (
	"iter"
	"math"
	"reflect"
	"time"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/scenario/limit"
)

// Expectations are the expected results of a run. A run that misses one fails with its own exit code, for pipelines.
type Expectations struct {
	// How many requests may end in each outcome, as counts or shares of all requests. Outcomes that are not named have
	// no limit.
	Outcomes OutcomeExpectations `json:"outcomes"`
	// The longest durations of spans of a request's life.
	Spans SpanExpectations `json:"spans"`
	// Limits of any measure that the summary has.
	Measures []limit.Limit `json:"measures" max:"64"`
	// Limits of any other number of the summary, by its names in --output json, such as classes[chat].attainment >=
	// 0.95 or refusals[epp: queue full] <= 3. A list's entry goes by its name, and a missing key of a map counts as 0.
	Figures []limit.Figure `json:"figures" max:"64"`
}

// OutcomeExpectations are amounts of requests by outcome.
type OutcomeExpectations struct {
	// Requests with a whole answer, and if held with their metadata.
	Completed limit.Amount `json:"completed"`
	// Requests refused with a 4xx other than 429.
	Refused limit.Amount `json:"refused"`
	// Requests refused with a 429.
	Overloaded limit.Amount `json:"overloaded"`
	// Requests answered with a 502 or 503.
	Unavailable limit.Amount `json:"unavailable"`
	// Requests answered with a 504, or that reached the client's time limit.
	TimedOut limit.Amount `json:"timed_out"`
	// Requests answered with another 5xx, or with an error inside a 2xx.
	ServerError limit.Amount `json:"server_error"`
	// Requests whose connection broke or whose answer was cut short.
	Broken limit.Amount `json:"broken"`
	// Requests that broke the held-open contract.
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
	// The longest duration of half of the requests.
	P50 time.Duration `json:"p50" above:"0s" max:"24h"`
	// The longest duration of nine in ten requests.
	P90 time.Duration `json:"p90" above:"0s" max:"24h"`
	// The longest duration of 99 in 100 requests.
	P99 time.Duration `json:"p99" above:"0s" max:"24h"`
	// The longest duration of any request.
	Max time.Duration `json:"max" above:"0s" max:"24h"`
}

// Check compares the expectations with a run, in the order of the fields. It returns nothing without expectations.
// figure returns a number of the run's summary by its path in JSON (report.Summary.Figure), and false if the run has
// none.
func (e *Expectations) Check(figure func(path ...string) (float64, bool)) (out []record.Expectation) {
	add := func(what, expected string, found func(v float64) (text string, ok bool), path ...string) {
		x := record.Expectation{What: what, Expected: expected, Found: "never measured"}
		if v, measured := figure(path...); measured {
			x.Found, x.OK = found(v)
		}
		out = append(out, x)
	}
	for outcome, a := range fields[limit.Amount](e.Outcomes) {
		if a.Given {
			add(outcome, a.String(), func(n float64) (string, bool) {
				requests, _ := figure("requests")
				return a.Holds(int(n), int(requests))
			}, "outcomes", outcome)
		}
	}
	for span, limits := range fields[Quantiles](e.Spans) {
		for q, most := range fields[time.Duration](limits) {
			if most > 0 {
				add(span+" "+q, "at most "+most.String(), func(seconds float64) (string, bool) {
					return limit.Rounded(seconds, most), time.Duration(math.Round(seconds*1e9)) <= most
				}, "spans", span, q)
			}
		}
	}
	for _, l := range e.Measures {
		add(l.Measure, l.Words(), func(v float64) (string, bool) { return l.Found(v), l.Holds(v) },
			"measures", l.Measure, "value")
	}
	for _, f := range e.Figures {
		add(f.Name, f.Words(), func(v float64) (string, bool) { return f.Text(v), f.Holds(v) }, f.Path...)
	}
	return out
}

// fields yields the fields of a section by their names in the file. All have the type T.
func fields[T any](section any) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		v := reflect.ValueOf(section)
		for _, f := range strictyaml.Fields(v.Type()) {
			if !yield(f.Name, v.FieldByIndex(f.Index).Interface().(T)) {
				return
			}
		}
	}
}
