package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/gaps"
	"github.com/windtunnel/windtunnel/report/stats"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Runs are runs of one scenario, each with a seed of its own.
type Runs []*Sample

// Analysis measures runs.
type Analysis struct {
	runs   Runs
	slo    record.SLO
	whole  part
	parts  map[int][]part
	values map[string][]float64 // of series, by family
}

// Under measures the runs by an SLO. Without bounds in it, the SLO of each request counts.
func (r Runs) Under(slo record.SLO) *Analysis {
	a := &Analysis{runs: r, slo: slo, parts: map[int][]part{}, values: map[string][]float64{}}
	a.whole = merged(a.sections(1))
	return a
}

// sections cuts the runs into about k parts with as many requests each. Of several runs, each run is one part.
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

// cut cuts a run into k parts.
func (x *Sample) cut(k int, slo record.SLO) []part {
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
		if e.good(slo) {
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

// Estimate is a measure's value with its interval.
type Estimate struct {
	stats.Interval
	// Sure reports that there is an interval. Without one, Why has the reason.
	Sure bool
	Why  string
}

// Estimate measures the runs. It returns false where they have no value of the measure.
func (a *Analysis) Estimate(m Measure) (Estimate, bool) {
	value, _ := m.in(&a.whole)
	if math.IsNaN(value) || math.IsInf(value, 0) || (m.Name == "goodput" || m.Name == "attainment") && !a.slo.Given() &&
		!judged(a.whole.sent) {
		return Estimate{}, false
	}
	in := m.in
	if m.quantile > 0 { // the interval of the share above a percentile gives that of the percentile (Woodruff, 1952)
		in = func(p *part) (float64, int) { return m.above(p, value) }
	}
	center, _ := in(&a.whole)
	e := estimate(len(a.runs), center, a.runs.unsteady(), m,
		func(k int) ([]float64, int) { return valuesIn(a.sections(k), in) },
		func() float64 { return a.widened(m) })
	if m.quantile > 0 {
		low, high := value, value
		if e.Sure {
			low, high = m.percentile(&a.whole, m.quantile-(center-e.Low)),
				m.percentile(&a.whole, m.quantile+(e.High-center))
		}
		e.Interval = stats.Interval{Value: value, Low: low, High: high}
	}
	if m.Unit == Share {
		e.High = min(e.High, 1)
	}
	if m.gaps { // the histogram's own error
		e.Low, e.High = min(e.Low, e.Value*(1-gaps.Precision)), max(e.High, e.Value*(1+gaps.Precision))
	}
	e.Low = max(e.Low, 0)
	return e, true
}

// valuesIn returns the value of each part, and the number of requests behind the smallest. It returns nothing where a
// part has no value.
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
	scaled    = "the number of servers changes with the load, so parts of the run are no samples of one another; " +
		"several runs do (windtunnel sweep --replications 10)"
)

// unsteady returns why the runs have no intervals, empty where they may have them.
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

// memoryOf is the measure whose autocorrelation stands in for that of a measure without a series of its own.
var memoryOf, _ = MeasureNamed("e2e mean")

// waitOf is the measure that contains how long requests wait for each other.
var waitOf, _ = MeasureNamed("ttft mean")

// mostValues bounds the length of a series.
const mostValues = 1000

// series returns how a measure of a single run changes over it: the means of groups of requests for a latency, the
// values of short parts for others. It returns nil where a group or part has no value.
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

// widened returns the factor by which the variance of a measure's interval grows (stats.Widened), from the series of a
// single run. Waits have the longest memory, and the varying lengths of answers hide it: the part of the variance that
// waits cause grows by their own factor.
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

// estimate finds the interval around a value with as many parts as are long enough. in returns the value of each of k
// parts, and the number of requests behind the smallest. widened returns the factor by which the variance of a single
// run grows.
func estimate(runs int, value float64, not string, m Measure, in func(k int) (values []float64, fewest int),
	widened func() float64) Estimate {
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
		needed = needed * 2 / 5 // independent runs show their spread themselves
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

// Difference is the difference of a measure between two runs, a and b. Where both have the same requests, they are
// paired.
type Difference struct {
	A, B Estimate
	// By is B minus A.
	By Estimate
}

// Compare measures the difference of b from a. Runs with the same seeds draw the same random values, so the difference
// comes from the scenarios.
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

// apart returns b minus a. It returns 0 for a difference within rounding: a microsecond, the resolution of gaps between
// tokens, or the error of a sum of floats.
func (m *Measure) apart(a, b float64) float64 {
	none := 1e-9 * max(math.Abs(a), math.Abs(b))
	if m.gaps {
		none = 2 * gaps.Precision * max(a, b) // each is off by at most half the resolution
	}
	if m.Unit == Seconds {
		none = max(none, 1.000001e-6)
	}
	if math.Abs(b-a) <= none {
		return 0
	}
	return b - a
}

// lessEach subtracts a series from another of the same length, element by element. It returns nil if the lengths
// differ.
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

// Paired keeps the requests that ended in the windows of both runs, and narrows the windows to the time after both
// warm-ups. The requests are in the order of sending, so that parts of both runs hold the same requests.
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
		machine.SortFunc(c.Requests,
			func(a, b Ended) int { return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Number, b.Number)) })
		return &c
	}
	return keep(a, b), keep(b, a)
}
