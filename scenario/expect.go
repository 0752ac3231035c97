package scenario

import (
	"iter"
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

// Measured holds the measurements that expectations are compared with.
type Measured struct {
	Requests int
	Outcomes map[record.Outcome]int
	// Span returns a quantile ("p50" … "max") of a span, if it was measured.
	Span func(span, quantile string) (time.Duration, bool)
	// Measure returns a measure by its name, if there is one: in seconds, as a share, or a number. It may be nil.
	Measure func(name string) (float64, bool)
	// Figure returns any other number, if there is one. It may be nil.
	Figure func(path []string) (float64, bool)
}

// Check compares the expectations with the measurements, in the order of the fields. It returns nothing without
// expectations.
func (e *Expectations) Check(m Measured) (out []record.Expectation) {
	for outcome, a := range fields[limit.Amount](e.Outcomes) {
		if a.Given {
			found, ok := a.Holds(m.Outcomes[record.Outcome(outcome)], m.Requests)
			out = append(out, record.Expectation{What: outcome, Expected: a.String(), Found: found, OK: ok})
		}
	}
	for span, limits := range fields[Quantiles](e.Spans) {
		for q, most := range fields[time.Duration](limits) {
			if most == 0 {
				continue
			}
			x := record.Expectation{What: span + " " + q, Expected: "at most " + most.String(), Found: "never measured"}
			if d, ok := m.Span(span, q); ok {
				x.Found, x.OK = d.String(), d <= most
			}
			out = append(out, x)
		}
	}
	bounded := func(what string, b interface {
		Words() string
		Text(v float64) string
		Holds(v float64) bool
	}, measured func() (float64, bool)) {
		x := record.Expectation{What: what, Expected: b.Words(), Found: "never measured"}
		if v, ok := measured(); ok {
			x.Found, x.OK = b.Text(v), b.Holds(v)
		}
		out = append(out, x)
	}
	for _, l := range e.Measures {
		bounded(l.Measure, l, func() (float64, bool) { return lookUp(m.Measure, l.Measure) })
	}
	for _, f := range e.Figures {
		bounded(f.Name, f, func() (float64, bool) { return lookUp(m.Figure, f.Path) })
	}
	return out
}

func lookUp[K any](in func(K) (float64, bool), key K) (float64, bool) {
	if in == nil {
		return 0, false
	}
	return in(key)
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
