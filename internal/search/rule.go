package search

import (
	"math"

	"gonum.org/v1/gonum/mathext"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report/stats"
)

// Objective is a condition on the requests of a load: their mean or a percentile of them is at most Bound.
type Objective struct {
	Quantile float64 // 0 for the mean
	Bound    float64
	// Share says that the values are 1 for a request that misses the objective and 0 for others. Sampled says that
	// these requests are some of many, so runs without a miss leave as many as chance allows.
	Share, Sampled bool
}

// least returns how many requests of each of so many runs show, without a miss, that a share keeps its bound.
func (o *Objective) least(runs int) int {
	if !o.Sampled || o.Bound <= 0 || o.Bound >= 1 {
		return 0
	}
	return int(math.Ceil(math.Log(1-confidence) / math.Log(1-o.Bound) / float64(runs) / (1 - WarmUp)))
}

// Run is the result of one run of a load.
type Run struct {
	// Values are, by objective, the values of the requests after the run has warmed up.
	Values [][]float64
	// Early and Late are the mean waits in the first and the second half of all the run's requests, including the
	// warm-up. Each includes Served of the mean time from there to a request's end, so that negligible waits stay
	// negligible. Both are 0 if the run cannot show whether it settles.
	Early, Late float64
	// Unsettled says that the requests in flight returned to no level.
	Unsettled bool
}

// WarmUp is the share of a run's requests that Values leave out, since a run begins with none in flight.
const WarmUp = 0.2

// Served is the share of the time of service in Early and Late.
const Served = 0.1

// MostGrowth bounds how much longer requests wait in the second half of a run than in the first. Under a load of
// exactly the capacity, the wait grows from empty as the square root of time, for all arrivals and services: (1 -
// 0.5^1.5) / 0.5^1.5. Above the capacity it grows faster, and below it settles.
const MostGrowth = 1.83

// mostDrift bounds that growth if most runs do not settle. The requests in flight then follow the variation of the
// requests, and not a queue.
const mostDrift = 1.25

// confidence is the confidence of a one-sided limit.
const confidence = 0.95

// Estimate is a value of pooled runs, with one-sided limits in both directions.
type Estimate struct{ Value, Low, High float64 }

// Look is the judgement about one load.
type Look struct {
	Rate           float64
	Runs, Requests int        // so many runs of so many requests each
	Estimates      []Estimate // by objective
	Growth         Estimate
	Verdict        Verdict
	// Fails are the objectives for which Verdict is not Keeps, the first of several; -1 is the growth.
	Fails []int

	keeps  float64 // bound / upper limit of the objective closest to its bound: from 1 on it keeps
	swing  float64 // variation of the growth between runs
	spread float64 // variation of that objective between runs, relative to its value
}

// Judge pools the runs of one load. Each percentile and mean is of all requests. Its limits come from leaving out one
// run after the other (the jackknife) and from Student's t. Delays grow like the reciprocal of the remaining capacity,
// so the reciprocal of a delay, and the root of a share, vary evenly between runs.
func Judge(objectives []Objective, runs []Run) Look {
	l := Look{Runs: len(runs), Verdict: Keeps, keeps: math.Inf(1)}
	say := func(i int, v Verdict) {
		if v < l.Verdict {
			l.Verdict, l.Fails = v, nil
		}
		if v == l.Verdict && v != Keeps {
			l.Fails = append(l.Fails, i)
		}
	}
	for i, o := range objectives {
		e, spread := o.estimate(i, runs)
		l.Estimates = append(l.Estimates, e)
		say(i, verdict(e, o.Bound))
		if near := o.Bound / e.High; !(near >= l.keeps) { // also for NaN
			l.keeps, l.spread = near, spread
		}
	}
	l.Growth, l.swing = jackknife(len(runs), -1, func(without int) float64 {
		early, late := 0.0, 0.0
		for i := range runs {
			if i != without {
				early, late = early+runs[i].Early, late+runs[i].Late
			}
		}
		if early == 0 {
			return 0
		}
		return late / early
	})
	unsettled := 0
	for i := range runs {
		if runs[i].Unsettled {
			unsettled++
		}
	}
	v := verdict(l.Growth, MostGrowth)
	switch {
	case l.Growth.Value > MostGrowth:
		l.Verdict, l.Fails = Misses, []int{-1}
	case v != Keeps:
		say(-1, v)
	case 2*unsettled > len(runs) && l.Growth.Value > mostDrift:
		say(-1, Undecided)
		l.keeps = min(l.keeps, mostDrift/l.Growth.Value)
	}
	if l.Growth.Value > 0 {
		l.keeps = min(l.keeps, MostGrowth/l.Growth.High)
	}
	return l
}

func verdict(e Estimate, bound float64) Verdict {
	switch {
	case e.High <= bound:
		return Keeps
	case e.Low > bound:
		return Misses
	}
	return Undecided
}

func (o *Objective) estimate(i int, runs []Run) (e Estimate, spread float64) {
	var all []value
	if o.Quantile > 0 {
		all = sorted(i, runs)
	}
	e, spread = jackknife(len(runs), map[bool]float64{false: -1, true: 0.5}[o.Share], func(without int) float64 {
		if o.Quantile > 0 {
			return quantile(all, without, o.Quantile)
		}
		sum, n := 0.0, 0
		for r := range runs {
			if r != without {
				for _, v := range runs[r].Values[i] {
					sum += v
				}
				n += len(runs[r].Values[i])
			}
		}
		return sum / float64(n)
	})
	if o.Sampled {
		n := 0.0
		for r := range runs {
			n += float64(len(runs[r].Values[i]))
		}
		if hit := math.Round(e.Value * n); hit < n {
			e.High = max(e.High, mathext.InvRegIncBeta(hit+1, n-hit, confidence))
		}
	}
	return e, spread
}

// value is a value of an objective, with the index of its run.
type value struct {
	v   float64
	run int
}

// sorted returns all values of an objective in rising order.
func sorted(i int, runs []Run) (all []value) {
	for r := range runs {
		for _, v := range runs[r].Values[i] {
			all = append(all, value{v, r})
		}
	}
	machine.SortFunc(all, func(a, b value) int {
		switch {
		case a.v < b.v:
			return -1
		case a.v > b.v:
			return 1
		}
		return a.run - b.run
	})
	return all
}

// quantile returns the smallest value, without those of one run, that at least this share of the values does not
// exceed.
func quantile(all []value, without int, p float64) float64 {
	n := 0
	for _, x := range all {
		if x.run != without {
			n++
		}
	}
	rank := max(1, int(math.Ceil(p*float64(n))))
	for _, x := range all {
		if x.run != without {
			if rank--; rank == 0 {
				return x.v
			}
		}
	}
	return math.NaN()
}

// jackknife returns a value of n runs with its limits, from the values without each of the runs (-1: with all), on the
// scale of a power of the value. spread is the standard deviation between runs, relative to the value.
func jackknife(n int, power float64, value func(without int) float64) (e Estimate, spread float64) {
	e = Estimate{Value: value(-1), High: math.Inf(1)}
	if math.IsNaN(e.Value) {
		return e, math.Inf(1)
	}
	sum, squares := 0.0, 0.0
	scaled := func(v float64) float64 { return math.Pow(v, power) }
	back := func(x float64) float64 { return math.Pow(max(x, 0), 1/power) }
	for i := range n {
		x := float64(n)*scaled(e.Value) - float64(n-1)*scaled(value(i))
		delta := x - sum/float64(max(i, 1))
		sum += x
		squares += delta * (x - sum/float64(i+1))
	}
	mean, deviation := sum/float64(n), math.Sqrt(squares/float64(n-1))
	if math.IsInf(scaled(e.Value), 0) { // nothing waits, so nothing varies
		return Estimate{Value: e.Value, Low: e.Value, High: e.Value}, 0
	}
	half := stats.T(2*confidence-1, n-1) * deviation / math.Sqrt(float64(n))
	switch {
	case math.IsNaN(half): // without one of the runs nothing waits
		return e, math.Inf(1)
	case power < 0:
		half = -half
	}
	if e.Low, e.High = back(mean-half), back(mean+half); e.Value == 0 {
		return e, 0
	}
	return e, math.Abs(deviation / power / scaled(e.Value))
}
