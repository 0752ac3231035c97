package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/report/gaps"
	"github.com/windtunnel/windtunnel/report/stats"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// SLO is what makes an answer good: it is whole, and each of these that is above 0
// holds.
type SLO struct {
	TTFT, TPOT, E2E time.Duration
}

// Given says whether there is any.
func (o SLO) Given() bool { return o != SLO{} }

// SLOTold is an SLO in a summary, in seconds.
type SLOTold struct {
	TTFT float64 `json:"ttft,omitempty"`
	TPOT float64 `json:"tpot,omitempty"`
	E2E  float64 `json:"e2e,omitempty"`
}

func (o SLO) told() *SLOTold {
	if !o.Given() {
		return nil
	}
	return &SLOTold{o.TTFT.Seconds(), o.TPOT.Seconds(), o.E2E.Seconds()}
}

// SLO is what was told; none where that is nil.
func (t *SLOTold) SLO() SLO {
	if t == nil {
		return SLO{}
	}
	of := func(seconds float64) time.Duration { return time.Duration(math.Round(min(seconds, 1e6) * 1e9)) }
	return SLO{of(t.TTFT), of(t.TPOT), of(t.E2E)}
}

// Holds tells whether a request was answered within it.
func (o SLO) Holds(e *Ended) bool {
	within := func(seconds float64, most time.Duration) bool { return most == 0 || seconds <= most.Seconds() }
	tpot, _ := e.TPOT()
	return e.Completed && within(e.TTFT.Seconds(), o.TTFT) && within(tpot, o.TPOT) && within(e.E2E.Seconds(), o.E2E)
}

// judge notes whether a request keeps to what it told.
func (e *Ended) judge(own SLO) { e.Judged, e.Good = own.Given(), own.Given() && own.Holds(e) }

// good says whether a request is good: by what is asked for, else by what it told itself,
// and where neither says anything, if it completed.
func (o SLO) good(e *Ended) bool {
	switch {
	case o.Given():
		return o.Holds(e)
	case e.Judged:
		return e.Good
	}
	return e.Completed
}

// judged says whether any of them told what a good answer keeps to.
func judged(list []Ended) bool {
	return slices.ContainsFunc(list, func(e Ended) bool { return e.Judged })
}

// Measure is something that a run is measured by.
type Measure struct {
	// Name is such as "ttft p99" or "requests/s".
	Name string
	// Unit is seconds, share, or a count per second.
	Unit Unit
	// HigherIsBetter says which of two values is better. Of a load neither is.
	HigherIsBetter bool

	family   string  // of those that are of the same values
	quantile float64 // of the values of one request each, 0 for a mean
	value    func(e *Ended) (float64, bool)
	whole    func(p *part) float64 // where it is no request's
	gaps     bool                  // quantile is that of the gaps between tokens
	load     bool                  // it is of the servers, over all of a run
	neutral  bool                  // neither of two values is better
}

// Judged says whether one of two values of it is better.
func (m *Measure) Judged() bool { return !m.load && !m.neutral }

// Of is what one request comes to by a measure of single requests; false where it has none of it, or the
// measure is of several requests together.
func (m *Measure) Of(e *Ended) (value float64, ok bool) {
	if m.value == nil {
		return 0, false
	}
	return m.value(e)
}

// Quantile is that of the values of single requests which the measure is; 0 for their mean.
func (m *Measure) Quantile() float64 { return m.quantile }

// Unit is what a measure counts in.
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

// part is a section of a run. The requests of the window, in the order in which they ended, make sections of
// as many requests each: what is measured of requests comes of these. The window makes sections as long as each
// other: what is counted over time comes of those.
type part struct {
	sent []Ended
	slo  SLO

	seconds                        float64
	completed, input, output, good float64 // of requests that ended in the section
	inFlight                       float64 // on average
	gpuSeconds, usd                float64 // of the servers; usd is not a number where some have no price
	gaps                           gaps.Counts
	load                           []LoadSummary // of a whole run

	family string    // of the measure that was last asked for,
	sorted []float64 // and what requests came to by it: once for all its quantiles
}

// quantiles of latencies that are measured.
var quantiles = []struct {
	name string
	p    float64
}{{"mean", 0}, {"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}}

// Measures are all of them, in the order in which they are told.
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
			return float64(count(p.sent, p.slo.good)) / float64(len(p.sent))
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

// MeasureNamed is the measure of this name.
func MeasureNamed(name string) (Measure, bool) {
	for _, m := range Measures() {
		if m.Name == name {
			return m, true
		}
	}
	return Measure{}, false
}

func count(list []Ended, of func(*Ended) bool) (n int) {
	for i := range list {
		if of(&list[i]) {
			n++
		}
	}
	return n
}

// in is what the measure comes to in a part of a run, and from how many requests;
// not a number where there is nothing to measure.
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

// sorted returns what the requests of a part come to by the measure, in rising order.
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

// percentile returns another percentile of what this one is of.
func (m *Measure) percentile(p *part, quantile float64) float64 {
	quantile = min(max(quantile, 0), 1)
	if m.gaps {
		return p.gaps.Quantile(quantile)
	}
	return stats.Quantile(m.sorted(p), quantile)
}

// above returns the share of what this is a percentile of that is above a value, and of how many.
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

// Text is a value of the measure as people read it.
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

// Signed is a difference of two values.
func (m *Measure) Signed(v float64) string {
	switch {
	case v > 0:
		return "+" + m.Text(v)
	case v < 0:
		return "-" + m.Text(-v)
	}
	return "0"
}

// Least is how many requests a run needs so that the measure is more than the run's
// extreme.
func (m *Measure) Least() int { return int(math.Ceil(beyond/(1-m.quantile) - 1e-6)) }

// Measured is a measure's value: Low and High are where the true one is, 95 times in
// 100, or Why says why that is not known.
type Measured struct {
	Measure string   `json:"measure"`
	Unit    Unit     `json:"unit"`
	Value   float64  `json:"value"`
	Low     *float64 `json:"low,omitempty"`
	High    *float64 `json:"high,omitempty"`
	Why     string   `json:"why,omitempty"`
}

// Digits leaves a value the nine digits after the point that are the same on every
// machine.
func Digits(v float64) float64 { return math.Round(v*1e9) / 1e9 }

// Measured is an estimate of the measure as it is told.
func (m *Measure) Measured(e Estimate) Measured {
	v := Measured{Measure: m.Name, Unit: m.Unit, Value: Digits(e.Value), Why: e.Why}
	if e.Sure {
		low, high := Digits(e.Low), Digits(e.High)
		v.Low, v.High = &low, &high
	}
	return v
}

// All is every measure of the runs.
func (a *Analysis) All() (out []Measured) {
	for _, m := range Measures() {
		if e, ok := a.Estimate(m); ok {
			out = append(out, m.Measured(e))
		}
	}
	return out
}

// Interval is a value with half of its interval, or with a question mark where there is
// none.
func (v *Measured) Interval() string {
	m := Measure{Unit: v.Unit}
	if v.Low == nil {
		return m.Text(v.Value) + " ?"
	}
	return m.Text(v.Value) + " ±" + m.Text((*v.High-*v.Low)/2)
}
