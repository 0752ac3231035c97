// Package search is the commands that decide (capacity, sweep, compare, validate, calibrate) without a command line.
// Capacity finds the highest rate, the fewest servers and the best ratio that keep objectives, where one look costs
// simulations and has random results.
//
// A search has two halves with different seeds. Pilot runs, few and short, estimate the answer and the length that runs
// need. Their results are not part of the answer: fresh runs decide, with a fixed number and length and the same seeds
// at each load. A load is kept if its upper limits keep all objectives there. The same seeds make all loads above the
// capacity fail together. For a wrong answer, those runs have to err at the capacity itself, which is one error and not
// one for each look.
package search

import (
	"math"
	"strconv"
)

// Verdict is the judgement of runs about a load, or about a number of servers.
type Verdict int

// The verdicts, the worst first.
const (
	Misses Verdict = iota - 1
	Undecided
	Keeps
)

// Band is the result of a search. Up to the rate Keeps the objectives are kept, and from the rate Misses on they are
// missed. The runs cannot decide about rates in between. Either is 0 if there is none.
type Band struct{ Keeps, Misses float64 }

// Rule says how loads are played and judged.
type Rule struct {
	Objectives []Objective
	// Runs is how many runs decide, at least 3. Precision is the relative distance to reach between the highest rate
	// that keeps and the lowest that does not. Least and Most bound rates.
	Runs                   int
	Precision, Least, Most float64
	// Requests returns the least number of requests of a run at a rate, and MostRequests bounds it.
	Requests     func(rate float64) int
	MostRequests int
	// Play plays a load once for each seed. Looked, if not nil, is called after each look.
	Play   func(load Load, seeds []int) ([]Run, error)
	Looked func(Load, Look)
}

// Load describes runs: a rate, servers as the caller counts them, and the requests of each run.
type Load struct {
	Rate     float64
	Servers  int
	Requests int
}

// Pilot runs: roughRuns while searching, and pilotRuns, longer times as long, to measure how much runs differ. Seeds
// from decidingSeed on belong to the runs that decide.
const (
	roughRuns, pilotRuns, longer = 2, 6, 2
	decidingSeed                 = 1000
	// Runs are long enough if they differ by this share of the value, and at most mostLonger times as long as needed.
	enough, settled, mostLonger = 0.25, 0.55, 4
	usualSteep                  = 4  // of the objective that enough assumes: a queue at 75 % of its capacity
	mostLooks                   = 16 // for one band, by the runs that decide
	// The runs that decide begin where the value is this share of its bound, because its upper limit is near the bound
	// there, and at most this factor from where the pilot runs ended.
	limitMeets, mostNearer = 0.86, 1.05
)

// Pilot reports whether these seeds belong to pilot runs.
func Pilot(seeds []int) bool { return seeds[0] < decidingSeed }

// Significant rounds to so many digits, as results are printed.
func Significant(v float64, digits int) float64 {
	f, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64) // of the library's own text
	return f
}

func (r *Rule) look(l Load, first, runs int) (Look, error) {
	l.Rate = Significant(l.Rate, 4)
	l.Requests = max(l.Requests, r.Requests(l.Rate))
	for i := range r.Objectives {
		if first == decidingSeed {
			l.Requests = max(l.Requests, r.Objectives[i].least(runs))
		}
	}
	l.Requests = min(l.Requests, r.MostRequests)
	seeds := make([]int, runs)
	for i := range seeds {
		seeds[i] = first + i
	}
	played, err := r.Play(l, seeds)
	if err != nil {
		return Look{}, err
	}
	k := Judge(r.Objectives, played)
	k.Rate, k.Requests = l.Rate, l.Requests
	if r.Looked != nil {
		r.Looked(l, k)
	}
	return k, nil
}

// roughly returns, by pilot runs, the factor by which the worst objective is above its bound. Up to 1, a load seems to
// keep it.
func (r *Rule) roughly(l Load) (off float64, err error) {
	k, err := r.look(l, 0, roughRuns)
	if err != nil {
		return 0, err
	}
	return r.off(&k), nil
}

// pilot returns, near a rough rate, the rate at which the runs that decide begin, and how many requests they need.
func (r *Rule) pilot(l Load, steep float64) (rate float64, requests int, err error) {
	for tries := range mostLooks {
		k, err := r.look(Load{l.Rate, l.Servers, longer * r.Requests(l.Rate)}, 0, pilotRuns)
		if err != nil {
			return 0, 0, err
		}
		switch off := r.off(&k); {
		case off > 1 && l.Rate > r.Least:
			l.Rate = max(r.Least, l.Rate*(1-min(max((1-1/off)/4, r.Precision), 0.25)))
			continue
		case off < 0.7 && tries == 0 && l.Rate < r.Most: // runs differ less than nearer to the bound
			l.Rate = min(l.Rate*1.1, r.Most)
			continue
		}
		nearer := math.Pow(limitMeets/r.off(&k), 1/max(steep, 1))
		return l.Rate * min(max(nearer, 1/mostNearer), mostNearer), r.long(&k, steep), nil
	}
	return l.Rate, l.Requests, nil
}

// long returns how many requests the runs that decide need, from how much pilot runs differ. An objective that grows
// less steeply with the rate must be known better for the same precision of the rate.
func (r *Rule) long(k *Look, steep float64) int {
	times := max(k.spread/enough*max(1, min(usualSteep/steep, 3)), k.swing/settled)
	if times *= times; !(times < mostLonger) {
		times = mostLonger
	}
	return min(r.MostRequests, int(math.Ceil(float64(k.Requests)*max(1./longer, times))))
}

// off returns the factor by which the worst objective is above its bound, at most 1 if none is.
func (r *Rule) off(k *Look) float64 {
	most := k.Growth.Value / MostGrowth
	for i, o := range r.Objectives {
		if x := k.Estimates[i].Value / o.Bound; !(x <= most) {
			most = x
		}
	}
	if math.IsNaN(most) {
		return math.Inf(1)
	}
	return most
}

// Rough is the pilot runs' estimate of the highest rate that servers keep, 0 if there is none. Steep is by how many
// percent the objective grows there with each percent of the rate.
type Rough struct{ Rate, Steep float64 }

// Rough estimates the highest rate that servers keep.
func (r *Rule) Rough(servers int, guess float64) (g Rough, err error) {
	var low, high, below, above float64 // rates, and the factors of their objectives
	for rate := min(max(guess, r.Least), r.Most); ; {
		off, err := r.roughly(Load{Rate: rate, Servers: servers})
		if err != nil {
			return g, err
		}
		if off <= 1 {
			low, below = rate, off
		} else {
			high, above = rate, off
		}
		switch {
		case low == r.Most || high == r.Least:
			return Rough{low, usualSteep}, nil
		case high == 0:
			rate = min(2*low, r.Most)
		case low == 0:
			rate = max(high/2, r.Least)
		case high > low*max(1.2, 1+r.Precision):
			rate = math.Sqrt(low * high)
		default:
			return Rough{math.Sqrt(low * high), math.Log(above/below) / math.Log(high/low)}, nil
		}
	}
}

// Highest finds the highest rate that servers keep, near a rough one.
func (r *Rule) Highest(servers int, rough Rough) (b Band, err error) {
	if rough.Rate == 0 {
		return b, nil
	}
	rate, requests, err := r.pilot(Load{Rate: rough.Rate, Servers: servers}, rough.Steep)
	if err != nil {
		return b, err
	}
	var keeps, fails *Look // the closest pair
	wide := math.Inf(1)
	for range mostLooks {
		k, err := r.look(Load{rate, servers, requests}, decidingSeed, r.Runs)
		if err != nil {
			return b, err
		}
		if k.Verdict == Misses && (b.Misses == 0 || k.Rate < b.Misses) {
			b.Misses = k.Rate
		}
		before := keeps
		if k.Verdict == Keeps {
			keeps = &k
		} else {
			before, fails = fails, &k
		}
		if keeps == nil && rate == r.Least {
			return b, nil
		}
		if keeps != nil && (rate == r.Most || r.near(keeps, fails, rough.Steep) || keeps == &k && r.flat(&k, before)) {
			break
		}
		if keeps == nil || fails == nil {
			rate = min(max(beyond(&k, before), r.Least), r.Most)
			continue
		}
		gap := fails.Rate / keeps.Rate
		if rate = between(keeps, fails, r.Precision/8); gap > 1+(wide-1)/2 {
			rate = math.Sqrt(keeps.Rate * fails.Rate)
		}
		wide = gap
	}
	if keeps == nil {
		return b, nil
	}
	b.Keeps = keeps.Rate
	return b, r.missed(servers, &b, fails)
}

// near reports that a look between two would add almost nothing, because the limit is close to its bound.
func (r *Rule) near(keeps, fails *Look, steep float64) bool {
	if fails == nil {
		return false
	}
	gap := fails.Rate/keeps.Rate - 1
	return gap <= r.Precision/4 || gap <= r.Precision && keeps.keeps < 1+min(steep, usualSteep)*0.025
}

// flat reports that a line through two looks that keep leaves almost nothing above the second.
func (r *Rule) flat(k, before *Look) bool {
	return before != nil && k.Rate > before.Rate &&
		(k.keeps-1)*(k.Rate-before.Rate) <= (before.keeps-k.keeps)*k.Rate*r.Precision/8
}

// between returns where the upper limit probably meets its bound, by a straight line between two looks, a little below.
func between(keeps, fails *Look, edge float64) float64 {
	part := (min(keeps.keeps, 2) - 1.01) / (min(keeps.keeps, 2) - max(fails.keeps, 0))
	rate := keeps.Rate + max(0, part)*(fails.Rate-keeps.Rate)
	return min(max(rate, keeps.Rate*(1+edge)), fails.Rate/(1+edge))
}

// beyond returns the next rate if all looks had the same verdict. It is further by a part of the distance between the
// limit and its bound, as in a queue at 80 % of its capacity, or where a line through the last two looks leads.
func beyond(k, before *Look) float64 {
	off := min(max(k.keeps, 0), 2) - 1
	step := max(min(off/5.5, 0.25), 0.01)
	if off < 0 {
		step = min(max(-off/4, 0.02), 0.25)
	}
	if before != nil {
		slope := (before.keeps - k.keeps) / (k.Rate - before.Rate) * k.Rate
		if slope > 0 && before.keeps > 0 && k.keeps > 0 {
			step = max(step, min(math.Abs(k.keeps-1)/slope, 0.5))
		} else {
			step = 0.25
		}
	}
	if k.Verdict == Keeps {
		return k.Rate * (1 + step)
	}
	return k.Rate * (1 - step)
}

// missed finds the lowest rate that certainly misses, near the highest that keeps, by pilot runs.
func (r *Rule) missed(servers int, b *Band, fails *Look) error {
	rate := b.Keeps
	if fails != nil {
		rate = fails.Rate
	}
	for step := 1 + r.Precision; rate < r.Most && (b.Misses == 0 || rate*step < b.Misses); step *= step {
		rate = min(rate*step, r.Most)
		k, err := r.look(Load{Rate: rate, Servers: servers}, 0, pilotRuns)
		if err != nil {
			return err
		}
		if k.Verdict == Misses {
			b.Misses = k.Rate
		}
	}
	return nil
}

// Fewest finds the fewest servers, from 1 to most, that keep the objectives at a rate, 0 if most do not. sure is false
// if one fewer is undecided, and odd is true if one more does not keep them.
func (r *Rule) Fewest(first, most int, rate float64) (n int, sure, odd bool, err error) {
	at := func(n int) Load { return Load{Rate: rate, Servers: n} }
	low, high := 0, most+1 // by pilot runs, low does not keep the objectives and high does
	for n := min(max(first, 1), most); high-low > 1; {
		off, err := r.roughly(at(n))
		switch {
		case err != nil:
			return 0, false, false, err
		case off <= 1:
			high = n
		default:
			low = n
		}
		if n = (low + high) / 2; high > most {
			n = min(2*low, most)
		}
	}
	n = min(high, most)
	k, err := r.look(Load{rate, n, longer * r.Requests(rate)}, 0, pilotRuns)
	if err != nil {
		return 0, false, false, err
	}
	requests := r.long(&k, usualSteep)
	said := map[int]Verdict{}
	of := func(n int) Verdict {
		if _, known := said[n]; !known && err == nil {
			k, err = r.look(Load{rate, n, requests}, decidingSeed, r.Runs)
			said[n] = k.Verdict
		}
		return said[n]
	}
	for n <= most && of(n) != Keeps && err == nil {
		n++
	}
	for n > 1 && n <= most && of(n-1) == Keeps && err == nil {
		n--
	}
	if n > most {
		return 0, said[most] == Misses, false, err
	}
	odd = n < most && of(n+1) != Keeps
	return n, n == 1 || said[n-1] == Misses, odd, err
}

// Best finds the maximum of a value among 1 to most, from a first guess, if the value rises up to the maximum and falls
// after it. It looks at both neighbours of the result.
func Best(first, most int, value func(n int) (float64, error)) (at int, err error) {
	known := map[int]float64{}
	of := func(n int) float64 {
		if n < 1 || n > most || err != nil {
			return -1
		}
		v, ok := known[n]
		if !ok {
			v, err = value(n)
			known[n] = v
		}
		return v
	}
	at = min(max(first, 1), most)
	for step := max(1, most/4); step > 0; {
		switch here := of(at); {
		case of(at+step) > here:
			at += step
		case of(at-step) > here:
			at -= step
		default:
			step /= 2
		}
	}
	return at, err
}
