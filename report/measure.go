package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/gaps"
	"github.com/windtunnel/windtunnel/report/stats"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Keeps reports whether the request completed within the bounds of an SLO.
func (e *Ended) Keeps(o record.SLO) bool {
	return e.Completed && e.misses(o) == [3]bool{}
}

// misses reports which bounds of an SLO the request's times are above: TTFT, TPOT and E2E.
func (e *Ended) misses(o record.SLO) [3]bool {
	above := func(seconds float64, most time.Duration) bool { return most != 0 && seconds > most.Seconds() }
	perToken, _ := e.TPOT()
	return [...]bool{above(e.TTFT.Seconds(), o.TTFT), above(perToken, o.TPOT), above(e.E2E.Seconds(), o.E2E)}
}

// addMissed counts the bounds of an SLO that the request misses.
func (e *Ended) addMissed(to *map[string]int, o record.SLO) {
	for i, missed := range e.misses(o) {
		if missed && *to == nil {
			*to = map[string]int{}
		}
		if missed {
			(*to)[[]string{"ttft", "tpot", "e2e"}[i]]++
		}
	}
}

// missedWords returns how many requests missed each bound.
func missedWords(missed map[string]int) (out []string) {
	for _, bound := range slices.Sorted(maps.Keys(missed)) {
		out = append(out, fmt.Sprintf("%s missed by %s", bound, terminal.Thousands(missed[bound])))
	}
	return out
}

// judge sets Judged and Good by the request's own SLO.
func (e *Ended) judge(own record.SLO) { e.Judged, e.Good = own.Given(), own.Given() && e.Keeps(own) }

// good reports whether the request keeps an SLO. Without one, the request's own SLO counts, and without either, that
// it completed.
func (e *Ended) good(o record.SLO) bool {
	switch {
	case o.Given():
		return e.Keeps(o)
	case e.Judged:
		return e.Good
	}
	return e.Completed
}

// judged reports whether any request carries an SLO.
func judged(list []Ended) bool {
	return slices.ContainsFunc(list, func(e Ended) bool { return e.Judged })
}

// Measure is a quantity that a run is measured by.
type Measure struct {
	// Name is a name such as "ttft p99" or "requests/s".
	Name string
	// Unit is the unit of its values.
	Unit Unit
	// HigherIsBetter says which of two values is better, if Judged.
	HigherIsBetter bool

	family   string  // measures of the same values
	quantile float64 // of single requests' values, 0 for the mean
	value    func(e *Ended) (float64, bool)
	whole    func(p *part) float64 // set for a measure that is not of single requests
	gaps     bool                  // quantile is of the gaps between tokens
	load     bool                  // it is of the servers, over a whole run
	neutral  bool                  // neither of two values is better
}

// Judged reports whether one of two values is better than the other.
func (m *Measure) Judged() bool { return !m.load && !m.neutral }

// Of returns the value of one request. It returns false if the request has none, or the measure is not of single
// requests.
func (m *Measure) Of(e *Ended) (value float64, ok bool) {
	if m.value == nil {
		return 0, false
	}
	return m.value(e)
}

// Quantile is the quantile of single requests' values, 0 for their mean.
func (m *Measure) Quantile() float64 { return m.quantile }

// Unit is the unit of a measure.
type Unit string

// The units.
const (
	Seconds   Unit = "seconds"
	Share     Unit = "share"
	PerSecond Unit = "per second"
	Count     Unit = "count"
	USD       Unit = "USD"
	Ratio     Unit = "ratio"
)

// part is a section of a run. By the requests in it, in the order in which they ended, sections have equal counts;
// measures of requests use these. By the window, sections have equal lengths; counts over time use these.
type part struct {
	sent []Ended
	slo  record.SLO

	seconds                        float64
	completed, input, output, good float64 // of requests that ended in the section
	inFlight                       float64 // on average
	gpuSeconds, usd                float64 // of the servers; usd is NaN where some have no price
	gaps                           gaps.Counts
	load                           []LoadSummary // of a whole run

	family string    // of the measure that sorted has,
	sorted []float64 // and the requests' values in rising order, once for all quantiles
}

// quantiles are the statistics of each latency.
var quantiles = []struct {
	name string
	p    float64
}{{"mean", 0}, {"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}}

// Measures returns all measures, in the order in which reports list them.
func Measures() []Measure {
	over := func(name string, of func(*part) float64) Measure {
		return Measure{Name: name, Unit: PerSecond, HigherIsBetter: true,
			whole: func(p *part) float64 { return of(p) / p.seconds }}
	}
	list := []Measure{
		over("requests/s", func(p *part) float64 { return p.completed }),
		over("input tokens/s", func(p *part) float64 { return p.input }),
		over("output tokens/s", func(p *part) float64 { return p.output }),
		over("goodput", func(p *part) float64 { return p.good }),
		{Name: "in flight", Unit: Count, neutral: true, whole: func(p *part) float64 { return p.inFlight }},
		{Name: "attainment", Unit: Share, HigherIsBetter: true, whole: func(p *part) float64 {
			return float64(count(p.sent, func(e *Ended) bool { return e.good(p.slo) })) / float64(len(p.sent))
		}},
		{Name: "completed", Unit: Share, HigherIsBetter: true, whole: func(p *part) float64 {
			return float64(count(p.sent, func(e *Ended) bool { return e.Completed })) / float64(len(p.sent))
		}},
		{Name: "hit rate", Unit: Share, HigherIsBetter: true, whole: func(p *part) float64 {
			cached, prompt := 0.0, 0.0
			for i := range p.sent {
				cached += float64(p.sent[i].Cached)
				prompt += float64(p.sent[i].Prompt)
			}
			return cached / prompt
		}},
	}
	latency := func(name string, value func(e *Ended) (float64, bool)) {
		for _, q := range quantiles {
			list = append(list, Measure{Name: name + " " + q.name, Unit: Seconds, family: name, quantile: q.p,
				value: value})
		}
	}
	latency("ttft", func(e *Ended) (float64, bool) { return e.TTFT.Seconds(), e.Completed && e.TTFT > 0 })
	latency("tpot", func(e *Ended) (float64, bool) {
		tpot, ok := e.TPOT()
		return tpot, ok && e.Completed
	})
	list = append(list, Measure{Name: "itl mean", Unit: Seconds, whole: func(p *part) float64 {
		took, gaps := 0.0, 0.0
		for i := range p.sent {
			if _, ok := p.sent[i].TPOT(); ok && p.sent[i].Completed {
				took += (p.sent[i].E2E - p.sent[i].TTFT).Seconds()
				gaps += float64(p.sent[i].Tokens - 1)
			}
		}
		return took / gaps
	}})
	list = append(list,
		Measure{Name: "GPUs", Unit: Count, whole: func(p *part) float64 { return p.gpuSeconds / p.seconds }},
		Measure{Name: "USD per 1M output tokens", Unit: USD,
			whole: func(p *part) float64 { return p.usd / p.output * 1e6 }})
	for _, q := range quantiles[1:] {
		list = append(list, Measure{Name: "itl " + q.name, Unit: Seconds, quantile: q.p, gaps: true,
			whole: func(p *part) float64 { return p.gaps.Quantile(q.p) }})
	}
	latency("e2e", func(e *Ended) (float64, bool) { return e.E2E.Seconds(), e.Completed })
	return append(list, loadMeasures()...)
}

// MeasureNamed returns the measure with this name.
func MeasureNamed(name string) (Measure, bool) {
	for _, m := range Measures() {
		if m.Name == name {
			return m, true
		}
	}
	return Measure{}, false
}

// count counts the elements for which a function returns true.
func count[T any](list []T, of func(*T) bool) (n int) {
	for i := range list {
		if of(&list[i]) {
			n++
		}
	}
	return n
}

// in returns the value of the measure in a part of a run, and the number of requests behind it. The value is NaN where
// there is nothing to measure.
func (m *Measure) in(p *part) (value float64, from int) {
	switch {
	case m.load:
		return m.whole(p), math.MaxInt
	case m.gaps:
		return m.whole(p), int(p.gaps.Total)
	case m.whole != nil && len(p.sent) == 0:
		return math.NaN(), 0
	case m.whole != nil:
		return m.whole(p), len(p.sent)
	}
	values := m.sorted(p)
	switch {
	case len(values) == 0:
		return math.NaN(), 0
	case m.quantile == 0:
		return stats.Mean(values), len(values)
	}
	return stats.Quantile(values, m.quantile), len(values)
}

// sorted returns the values of a part's requests in rising order.
func (m *Measure) sorted(p *part) []float64 {
	if p.family == m.family {
		return p.sorted
	}
	values := slices.Grow(p.sorted[:0], len(p.sent))
	for i := range p.sent {
		if v, ok := m.value(&p.sent[i]); ok {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	p.family, p.sorted = m.family, values
	return values
}

// percentile returns another percentile of the measure's values.
func (m *Measure) percentile(p *part, quantile float64) float64 {
	quantile = min(max(quantile, 0), 1)
	if m.gaps {
		return p.gaps.Quantile(quantile)
	}
	return stats.Quantile(m.sorted(p), quantile)
}

// above returns the share of the measure's values that are above a value, and how many values there are.
func (m *Measure) above(p *part, value float64) (share float64, from int) {
	if m.gaps {
		return p.gaps.Above(value), int(p.gaps.Total)
	}
	values := m.sorted(p)
	at, _ := slices.BinarySearchFunc(values, value, func(v, value float64) int {
		if v <= value {
			return -1
		}
		return 1
	})
	return float64(len(values)-at) / float64(len(values)), len(values)
}

// Text returns a value as people read it.
func (m *Measure) Text(v float64) string {
	switch m.Unit {
	case Seconds:
		return terminal.Span(v)
	case Share:
		return fmt.Sprintf("%.1f%%", 100*v)
	}
	if v >= 99.95 {
		return terminal.Thousands(int(math.Round(min(v, math.MaxInt32))))
	}
	return fmt.Sprintf("%.3g", v)
}

// Signed returns a difference of two values as people read it.
func (m *Measure) Signed(v float64) string {
	switch {
	case v > 0:
		return "+" + m.Text(v)
	case v < 0:
		return "-" + m.Text(-v)
	}
	return "0"
}

// Least is how many requests a run needs, so that a percentile is more than the run's extreme.
func (m *Measure) Least() int { return int(math.Ceil(beyond/(1-m.quantile) - 1e-6)) }

// Measured is a measure's value in a report. The true value is between Low and High 95 times in 100. Without an
// interval, Why has the reason.
type Measured struct {
	Measure string   `json:"measure"`
	Unit    Unit     `json:"unit"`
	Value   float64  `json:"value"`
	Low     *float64 `json:"low,omitempty"`
	High    *float64 `json:"high,omitempty"`
	Why     string   `json:"why,omitempty"`
}

// Digits rounds a value to nine decimals, which are the same on every machine.
func Digits(v float64) float64 { return math.Round(v*1e9) / 1e9 }

// Measured returns an estimate in the form that reports have.
func (m *Measure) Measured(e Estimate) Measured {
	v := Measured{Measure: m.Name, Unit: m.Unit, Value: Digits(e.Value), Why: e.Why}
	if e.Sure {
		low, high := Digits(e.Low), Digits(e.High)
		v.Low, v.High = &low, &high
	}
	return v
}

// All returns every measure of the runs.
func (a *Analysis) All() (out []Measured) {
	for _, m := range Measures() {
		if e, ok := a.Estimate(m); ok {
			out = append(out, m.Measured(e))
		}
	}
	return out
}

// Interval returns the value with half of its interval, or with a question mark where there is none.
func (v *Measured) Interval() string {
	m := Measure{Unit: v.Unit}
	if v.Low == nil {
		return m.Text(v.Value) + " ?"
	}
	return m.Text(v.Value) + " ±" + m.Text((*v.High-*v.Low)/2)
}
