package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
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
	return e.Completed && within(float64(e.TTFT)/1e6, o.TTFT) && within(tpot, o.TPOT) && within(float64(e.E2E)/1e6, o.E2E)
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
}

// Judged says whether one of two values of it is better.
func (m *Measure) Judged() bool { return !m.load }

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

// part is a stretch of a run: the requests that were sent in it, and what came to
// its end in it.
type part struct {
	sent                     []Ended
	seconds                  float64
	completed, input, output float64
	good                     float64 // of those sent
	gpuSeconds, usd          float64 // of the servers; usd is not a number where some have no price
	gaps                     gapCounts
	load                     []LoadSummary // of a whole run

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
		return Measure{Name: name, Unit: PerSecond, HigherIsBetter: true, whole: func(p *part) float64 { return of(p) / p.seconds }}
	}
	list := []Measure{
		over("requests/s", func(p *part) float64 { return p.completed }),
		over("input tokens/s", func(p *part) float64 { return p.input }),
		over("output tokens/s", func(p *part) float64 { return p.output }),
		over("goodput", func(p *part) float64 { return p.good }),
		{Name: "attainment", Unit: Share, HigherIsBetter: true, whole: func(p *part) float64 { return p.good / float64(len(p.sent)) }},
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
			list = append(list, Measure{Name: name + " " + q.name, Unit: Seconds, family: name, quantile: q.p, value: value})
		}
	}
	latency("ttft", func(e *Ended) (float64, bool) { return float64(e.TTFT) / 1e6, e.Completed && e.TTFT > 0 })
	latency("tpot", func(e *Ended) (float64, bool) {
		tpot, ok := e.TPOT()
		return tpot, ok && e.Completed
	})
	list = append(list, Measure{Name: "itl mean", Unit: Seconds, whole: func(p *part) float64 {
		took, gaps := 0.0, 0.0
		for i := range p.sent {
			if _, ok := p.sent[i].TPOT(); ok && p.sent[i].Completed {
				took += float64(p.sent[i].E2E-p.sent[i].TTFT) / 1e6
				gaps += float64(p.sent[i].Tokens - 1)
			}
		}
		return took / gaps
	}})
	list = append(list,
		Measure{Name: "GPUs", Unit: Count, whole: func(p *part) float64 { return p.gpuSeconds / p.seconds }},
		Measure{Name: "USD per 1M output tokens", Unit: USD, whole: func(p *part) float64 { return p.usd / p.output * 1e6 }})
	for _, q := range quantiles[1:] {
		list = append(list, Measure{Name: "itl " + q.name, Unit: Seconds, quantile: q.p, gaps: true, whole: func(p *part) float64 { return p.gaps.quantile(q.p) }})
	}
	latency("e2e", func(e *Ended) (float64, bool) { return float64(e.E2E) / 1e6, e.Completed })
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
		return m.whole(p), int(p.gaps.total)
	case m.whole != nil && len(p.sent) == 0:
		return math.NaN(), 0
	case m.whole != nil:
		return m.whole(p), len(p.sent)
	}
	if p.family != m.family {
		values := slices.Grow(p.sorted[:0], len(p.sent))
		for i := range p.sent {
			if v, ok := m.value(&p.sent[i]); ok {
				values = append(values, v)
			}
		}
		slices.Sort(values)
		p.family, p.sorted = m.family, values
	}
	values := p.sorted
	switch {
	case len(values) == 0:
		return math.NaN(), 0
	case m.quantile == 0:
		return stats.Mean(values), len(values)
	}
	return stats.Quantile(values, m.quantile), len(values)
}

// Runs are runs of one scenario, each with a seed of its own.
type Runs []*Sample

// Analysis is runs that are being measured.
type Analysis struct {
	runs  Runs
	slo   SLO
	whole part
	parts map[int][]part
}

// Under begins to measure runs, with what makes an answer good; where nothing is asked for,
// what each request told of itself.
func (r Runs) Under(slo SLO) *Analysis {
	a := &Analysis{runs: r, slo: slo, parts: map[int][]part{}}
	a.whole = merged(a.sections(1))
	return a
}

// sections cuts the runs into about k parts of as many requests each: several runs
// are parts by themselves.
func (a *Analysis) sections(k int) []part {
	if len(a.runs) > 1 {
		k = 1
	}
	parts, done := a.parts[k]
	if !done {
		for _, x := range a.runs {
			parts = append(parts, x.cut(k, a.slo)...)
		}
		a.parts[k] = parts
	}
	return parts
}

func merged(parts []part) (all part) {
	for i := range parts {
		p := &parts[i]
		if len(parts) == 1 {
			all.sent = p.sent
		} else {
			all.sent = append(all.sent, p.sent...)
		}
		all.seconds += p.seconds
		all.completed += p.completed
		all.input += p.input
		all.output += p.output
		all.good += p.good
		all.gpuSeconds += p.gpuSeconds
		all.usd += p.usd
		all.gaps.merge(&p.gaps)
		all.load = append(all.load, p.load...)
	}
	return all
}

// cut cuts a run into k parts of as many requests each.
func (x *Sample) cut(k int, slo SLO) []part {
	n := len(x.Requests)
	if k = min(k, n); k < 1 {
		return nil
	}
	parts, begins := make([]part, k), make([]machine.Time, k+1)
	for i := range parts {
		parts[i].sent = x.Requests[i*n/k : (i+1)*n/k]
		begins[i] = parts[i].sent[0].Sent
	}
	begins[0], begins[k] = x.From, x.To
	each := float64(x.Each)
	for i := range parts {
		parts[i].seconds = (begins[i+1] - begins[i]).Seconds()
		parts[i].gpuSeconds, parts[i].usd = math.NaN(), math.NaN()
		if l := x.Ledger; l != nil {
			if parts[i].gpuSeconds, parts[i].usd = l.between(begins[i], begins[i+1]); !l.Priced {
				parts[i].usd = math.NaN()
			}
		}
		if x.Gaps != nil {
			parts[i].gaps = *x.Gaps.between(begins[i], begins[i+1])
		}
		if k == 1 {
			parts[i].load = x.Load
		}
		for j := range parts[i].sent {
			e := &parts[i].sent[j]
			if slo.good(e) {
				parts[i].good += each
			}
			at, _ := slices.BinarySearchFunc(begins, e.ends()+1, func(b, t machine.Time) int { return cmp.Compare(b, t) })
			if at--; e.Completed && at < k {
				parts[at].completed += each
				parts[at].input += each * float64(e.Prompt)
				parts[at].output += each * float64(e.Tokens)
			}
		}
	}
	return parts
}

// Most and fewest sections of an interval, and how many requests beyond a
// percentile each of them has at least.
const (
	mostSections, fewestSections = 20, 10
	beyond                       = 25
)

// Estimate is a measure's value, and how sure it is.
type Estimate struct {
	stats.Interval
	// Sure says that there is an interval; Why not, else.
	Sure bool
	Why  string
}

// Estimate measures the runs. Where they have nothing of it, it is false.
func (a *Analysis) Estimate(m Measure) (Estimate, bool) {
	value, _ := m.in(&a.whole)
	if math.IsNaN(value) || math.IsInf(value, 0) || (m.Name == "goodput" || m.Name == "attainment") && !a.slo.Given() && !judged(a.whole.sent) {
		return Estimate{}, false
	}
	e := estimate(len(a.runs), value, a.runs.unsteady(), func(k int) ([]float64, int) { return valuesIn(a.sections(k), &m) }, m)
	if m.Unit == Share {
		e.High = min(e.High, 1)
	}
	if m.gaps { // no surer than what is kept
		e.Low, e.High = min(e.Low, e.Value*(1-gapPrecision)), max(e.High, e.Value*(1+gapPrecision))
	}
	e.Low = max(e.Low, 0)
	return e, true
}

func valuesIn(parts []part, m *Measure) (values []float64, fewest int) {
	fewest = math.MaxInt
	for i := range parts {
		v, from := m.in(&parts[i])
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, 0
		}
		values, fewest = append(values, v), min(fewest, from)
	}
	return values, fewest
}

const (
	unsettled = "the requests in flight never settle"
	scaled    = "the number of servers changes with the load, so that a part of the run says nothing about another; several runs do (windtunnel sweep --replications 10)"
)

// unsteady is why nothing that is measured in a run has an interval, empty where it
// may.
func (r Runs) unsteady() string {
	for _, x := range r {
		switch {
		case x.Scaled && len(r) == 1:
			return scaled
		case !x.Steady && !x.Scaled:
			return unsettled
		}
	}
	return ""
}

// estimate finds the interval around a value by as many sections as are long
// enough and independent. in is what each of k sections came to by itself, and of how
// many requests the smallest is.
func estimate(runs int, value float64, not string, in func(k int) (values []float64, fewest int), m Measure) Estimate {
	e := Estimate{Interval: stats.Interval{Value: value, Low: value, High: value}, Why: not}
	if m.load && runs == 1 {
		e.Why = "one whole run"
		return e
	}
	if not != "" && runs == 1 {
		return e
	}
	needed := m.Least()
	if runs > 1 {
		needed = needed * 2 / 5 // the spread of independent runs tells how much chance there is in each
	}
	for _, k := range []int{mostSections, fewestSections} {
		values, fewest := in(k)
		switch {
		case len(values) < 2 || runs == 1 && len(values) < k || fewest < needed:
			each := fmt.Sprintf("%s requests", terminal.Thousands(needed*fewestSections))
			if runs > 1 {
				each = fmt.Sprintf("%s requests in each run", terminal.Thousands(needed))
			}
			e.Why = "too short: " + each + " are needed"
		case runs == 1 && stats.Dependent(values):
			e.Why = "too short: its tenths depend on each other"
		default:
			return Estimate{Interval: stats.Around(value, values), Sure: true}
		}
	}
	return e
}

// Difference is how one measure of b differs from the same of a: of the same
// requests, where both have as many.
type Difference struct {
	A, B Estimate
	// By is B less A.
	By Estimate
}

// Compare measures what b has more of than a. Runs of a pair of scenarios with the same
// seeds meet the same chances, so that what differs is what the scenarios do.
func Compare(m Measure, a, b *Analysis) (Difference, bool) {
	var d Difference
	var okA, okB bool
	if d.A, okA = a.Estimate(m); !okA {
		return d, false
	}
	if d.B, okB = b.Estimate(m); !okB || len(a.runs) != len(b.runs) {
		return d, false
	}
	not := cmp.Or(a.runs.unsteady(), b.runs.unsteady())
	d.By = estimate(len(a.runs), m.apart(d.A.Value, d.B.Value), not, func(k int) ([]float64, int) {
		x, fewestX := valuesIn(a.sections(k), &m)
		y, fewestY := valuesIn(b.sections(k), &m)
		if len(x) != len(y) {
			return nil, 0
		}
		for i := range x {
			x[i] = m.apart(x[i], y[i])
		}
		return x, min(fewestX, fewestY)
	}, m)
	return d, true
}

// apart returns b less a, or 0 where they differ by what means nothing to anybody: a microsecond, what gaps
// between tokens are rounded to, or what sums of floats are.
func (m *Measure) apart(a, b float64) float64 {
	none := 1e-9 * max(math.Abs(a), math.Abs(b))
	if m.gaps {
		none = 2 * gapPrecision * max(a, b) // each is as far off as half of what they are rounded to
	}
	if m.Unit == Seconds {
		none = max(none, 1.000001e-6)
	}
	if math.Abs(b-a) <= none {
		return 0
	}
	return b - a
}

// Paired leaves only the requests in both of two runs that both played, from when
// both had warmed up.
func Paired(a, b *Sample) (x, y *Sample) {
	from := max(firstOf(a), firstOf(b))
	has := func(s *Sample) map[int32]bool {
		numbers := make(map[int32]bool, len(s.Requests))
		for i := range s.Requests {
			numbers[s.Requests[i].Number] = true
		}
		return numbers
	}
	keep := func(s *Sample, other map[int32]bool) *Sample {
		c := *s
		c.Requests = slices.DeleteFunc(slices.Clone(s.Requests), func(e Ended) bool { return e.Number < from || !other[e.Number] })
		if len(c.Requests) > 0 {
			c.From = max(c.From, c.Requests[0].Sent)
		}
		return &c
	}
	inA, inB := has(a), has(b)
	return keep(a, inB), keep(b, inA)
}

func firstOf(s *Sample) int32 {
	if len(s.Requests) == 0 {
		return 0
	}
	return s.Requests[0].Number
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
