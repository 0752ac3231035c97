package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
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
		return Measure{Name: name, Unit: PerSecond, HigherIsBetter: true, whole: func(p *part) float64 { return of(p) / p.seconds }}
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
			list = append(list, Measure{Name: name + " " + q.name, Unit: Seconds, family: name, quantile: q.p, value: value})
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
		Measure{Name: "USD per 1M output tokens", Unit: USD, whole: func(p *part) float64 { return p.usd / p.output * 1e6 }})
	for _, q := range quantiles[1:] {
		list = append(list, Measure{Name: "itl " + q.name, Unit: Seconds, quantile: q.p, gaps: true, whole: func(p *part) float64 { return p.gaps.Quantile(q.p) }})
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

// Runs are runs of one scenario, each with a seed of its own.
type Runs []*Sample

// Analysis is runs that are being measured.
type Analysis struct {
	runs   Runs
	slo    SLO
	whole  part
	parts  map[int][]part
	values map[string][]float64 // of series, by family
}

// Under begins to measure runs, with what makes an answer good; where nothing is asked for,
// what each request told of itself.
func (r Runs) Under(slo SLO) *Analysis {
	a := &Analysis{runs: r, slo: slo, parts: map[int][]part{}, values: map[string][]float64{}}
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
		all.slo = p.slo
		all.inFlight += p.inFlight * p.seconds
		all.seconds += p.seconds
		all.completed += p.completed
		all.input += p.input
		all.output += p.output
		all.good += p.good
		all.gpuSeconds += p.gpuSeconds
		all.usd += p.usd
		all.gaps.Merge(&p.gaps)
		all.load = append(all.load, p.load...)
	}
	all.inFlight /= all.seconds
	return all
}

// cut cuts a run into k sections.
func (x *Sample) cut(k int, slo SLO) []part {
	n := len(x.Requests)
	if k = min(k, n); k < 1 {
		return nil
	}
	parts, inFlight := make([]part, k), x.InFlight(k)
	window, sections := x.To-x.From, machine.Time(k)
	begin := func(i int) machine.Time {
		return x.From + window/sections*machine.Time(i) + window%sections*machine.Time(i)/sections
	}
	for i := range parts {
		p, from, to := &parts[i], begin(i), begin(i+1)
		p.sent, p.slo, p.seconds = x.Requests[i*n/k:(i+1)*n/k], slo, window.Seconds()/float64(k)
		if inFlight != nil {
			p.inFlight = inFlight[i]
		}
		p.gpuSeconds, p.usd = math.NaN(), math.NaN()
		if l := x.Ledger; l != nil {
			if p.gpuSeconds, p.usd = l.between(from, to); !l.Priced {
				p.usd = math.NaN()
			}
		}
		if x.Gaps != nil && k <= mostSections {
			p.gaps = *x.Gaps.Between(from, to)
		}
		if k == 1 {
			p.load = x.Load
		}
	}
	each, width := float64(x.Each), float64(max(window, 1))/float64(k)
	for i := range x.Requests {
		e := &x.Requests[i]
		if !e.Completed {
			continue
		}
		p := &parts[min(int(float64(max(e.ends()-1-x.From, 0))/width), k-1)]
		p.completed += each
		p.input += each * float64(e.Prompt)
		p.output += each * float64(e.Tokens)
		if slo.good(e) {
			p.good += each
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
	in := m.in
	if m.quantile > 0 { // A percentile is as sure as the share that is above it (Woodruff, 1952).
		in = func(p *part) (float64, int) { return m.above(p, value) }
	}
	center, _ := in(&a.whole)
	e := estimate(len(a.runs), center, a.runs.unsteady(), m,
		func(k int) ([]float64, int) { return valuesIn(a.sections(k), in) },
		func() float64 { return a.widened(m) })
	if m.quantile > 0 {
		low, high := value, value
		if e.Sure {
			low, high = m.percentile(&a.whole, m.quantile-(center-e.Low)), m.percentile(&a.whole, m.quantile+(e.High-center))
		}
		e.Interval = stats.Interval{Value: value, Low: low, High: high}
	}
	if m.Unit == Share {
		e.High = min(e.High, 1)
	}
	if m.gaps { // no surer than what is kept
		e.Low, e.High = min(e.Low, e.Value*(1-gaps.Precision)), max(e.High, e.Value*(1+gaps.Precision))
	}
	e.Low = max(e.Low, 0)
	return e, true
}

// valuesIn returns what parts come to, and of how many requests the smallest is; none where one has nothing.
func valuesIn(parts []part, in func(*part) (float64, int)) (values []float64, fewest int) {
	fewest = math.MaxInt
	for i := range parts {
		v, from := in(&parts[i])
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

// memoryOf is the measure whose memory a measure has that has no series of its own.
var memoryOf = mustMeasure("e2e mean")

// waitOf is the measure of which requests that wait for each other have more.
var waitOf = mustMeasure("ttft mean")

func mustMeasure(name string) Measure {
	m, ok := MeasureNamed(name)
	if !ok {
		panic("report: no measure is called " + name)
	}
	return m
}

// mostValues is of how many values a series is at most.
const mostValues = 1000

// series returns how a measure of a single run changes over it: the means of groups of requests of what its
// percentiles are of, or short sections' own values. It returns nil where some of these have none.
func (a *Analysis) series(m Measure) []float64 {
	if m.value == nil {
		values, _ := valuesIn(a.sections(min(mostValues, len(a.whole.sent)/10)), m.in)
		return values
	}
	if s, done := a.values[m.family]; done {
		return s
	}
	k := min(mostValues, len(a.whole.sent)/5)
	sums, counts := make([]float64, k), make([]float64, k)
	for i := range a.whole.sent {
		if v, ok := m.value(&a.whole.sent[i]); ok {
			j := i * k / len(a.whole.sent)
			sums[j], counts[j] = sums[j]+v, counts[j]+1
		}
	}
	for j := range sums {
		if sums[j] /= counts[j]; counts[j] == 0 {
			sums = nil
			break
		}
	}
	a.values[m.family] = sums
	return sums
}

// widened returns the factor by which the variance of a measure's interval grows (stats.Widened), by how it changes
// over a single run. What a request waits for remembers longest, and hides in how long requests take by themselves:
// the part of the variance that comes of the time to the first token grows as that does, too.
func (a *Analysis) widened(m Measure) float64 {
	own := a.series(m)
	widened := widenedBy(own, a.series(memoryOf))
	waits := a.series(waitOf)
	if m.family != memoryOf.family || len(own) != len(waits) || len(own) < mostSections {
		return widened
	}
	part := min(1, stats.Spread(waits, mostSections)/stats.Spread(own, mostSections))
	return widened + part*(widenedBy(waits)-1)
}

// widenedBy returns the factor by the first of these series that there is.
func widenedBy(series ...[]float64) float64 {
	for _, s := range series {
		if len(s) > 0 {
			return stats.Widened(stats.Independent(s))
		}
	}
	return stats.Widened(1)
}

// estimate finds the interval around a value by as many sections as are long enough. in returns what each of
// k sections comes to by itself, and of how many requests the smallest is; widened returns the factor by
// which the variance of a single run grows.
func estimate(runs int, value float64, not string, m Measure, in func(k int) (values []float64, fewest int), widened func() float64) Estimate {
	e := Estimate{Interval: stats.Interval{Value: value, Low: value, High: value}, Why: not}
	if m.load && runs == 1 {
		e.Why = "one whole run"
		return e
	}
	if not != "" && runs == 1 {
		return e
	}
	needed, factor := m.Least(), 1.0
	if runs > 1 {
		needed = needed * 2 / 5 // the spread of independent runs tells how much chance there is in each
	}
	for _, k := range []int{mostSections, fewestSections} {
		values, fewest := in(k)
		if len(values) < 2 || runs == 1 && len(values) < k || fewest < needed {
			each := fmt.Sprintf("%s requests", terminal.Thousands(needed*fewestSections))
			if runs > 1 {
				each = fmt.Sprintf("%s requests in each run", terminal.Thousands(needed))
			}
			e.Why = "too short: " + each + " are needed"
			continue
		}
		if runs == 1 {
			factor = widened()
		}
		return Estimate{Interval: stats.Around(value, values, factor), Sure: true}
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
	d.By = estimate(len(a.runs), m.apart(d.A.Value, d.B.Value), not, m, func(k int) ([]float64, int) {
		x, fewestX := valuesIn(a.sections(k), m.in)
		y, fewestY := valuesIn(b.sections(k), m.in)
		if len(x) != len(y) {
			return nil, 0
		}
		for i := range x {
			x[i] = m.apart(x[i], y[i])
		}
		return x, min(fewestX, fewestY)
	}, func() float64 {
		return widenedBy(lessEach(b.series(m), a.series(m)), lessEach(b.series(memoryOf), a.series(memoryOf)))
	})
	return d, true
}

// apart returns b less a, or 0 where they differ by what means nothing to anybody: a microsecond, what gaps
// between tokens are rounded to, or what sums of floats are.
func (m *Measure) apart(a, b float64) float64 {
	none := 1e-9 * max(math.Abs(a), math.Abs(b))
	if m.gaps {
		none = 2 * gaps.Precision * max(a, b) // each is as far off as half of what they are rounded to
	}
	if m.Unit == Seconds {
		none = max(none, 1.000001e-6)
	}
	if math.Abs(b-a) <= none {
		return 0
	}
	return b - a
}

// lessEach returns what is left of a series less another that is as long, else nil.
func lessEach(x, y []float64) []float64 {
	if len(x) != len(y) {
		return nil
	}
	out := make([]float64, len(x))
	for i := range x {
		out[i] = x[i] - y[i]
	}
	return out
}

// Paired leaves only the requests in both of two runs that ended in the windows of both, and narrows the
// windows to when both had warmed up. They are in the order in which they were sent, so that sections of both
// are of the same requests.
func Paired(a, b *Sample) (x, y *Sample) {
	from := max(a.From, b.From)
	keep := func(s, other *Sample) *Sample {
		in := make(map[int32]bool, len(other.Requests))
		for i := range other.Requests {
			if e := &other.Requests[i]; e.ends() > from {
				in[e.Number] = true
			}
		}
		c := *s
		c.Requests, c.others = slices.Clone(s.Requests), slices.Clone(s.others)
		c.window(min(from, s.To), s.To, func(e *Ended) bool { return in[e.Number] })
		slices.SortFunc(c.Requests, func(a, b Ended) int { return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Number, b.Number)) })
		return &c
	}
	return keep(a, b), keep(b, a)
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
