package report

import (
	"cmp"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/gaps"
	"github.com/windtunnel/windtunnel/report/stats"
)

// Ended is what one of a run's requests came to.
type Ended struct {
	// Sent is when its client sent it.
	Sent machine.Time
	// TTFT and E2E are how long its first and its last token took from there; E2E of a request that did not
	// complete is how long it took to fail.
	TTFT, E2E machine.Time
	// Number is the request's, from 1: the same in every run of one seed.
	Number int32
	// Prompt is how many tokens its prompt had, and Cached how many of them were
	// cached where it was prefilled; Tokens is how many it was answered with.
	Prompt, Cached, Tokens int32
	// Completed says that it was answered wholly, Judged that it told what a good answer
	// keeps to, its class's or the workload's, and Good that it was one.
	Completed, Judged, Good bool
}

// TPOT is the time for each output token after the first, in seconds: what vLLM's
// bench calls so. False where there is no second token.
func (e *Ended) TPOT() (seconds float64, ok bool) {
	if e.Tokens < 2 || e.E2E < e.TTFT {
		return 0, false
	}
	return (e.E2E - e.TTFT).Seconds() / float64(e.Tokens-1), true
}

// MaxSample is how many requests of a run are kept, one in two, one in four … of
// more of them.
const MaxSample = 1 << 19

// sample keeps requests as they end, evenly thinned where they are too many.
type sample struct {
	list   []Ended
	stride int32
}

// Each has to be told of every request as it ends, also of those that are thinned out. It
// is set before the first event.
func (t *Tally) Each(to func(*Ended)) { t.each = to }

// keep keeps a request that has ended, and tells who wants to know of each.
func (t *Tally) keep(e Ended) {
	t.ended.add(e)
	if t.each != nil {
		own := e // so that e need not be kept where nobody wants to know
		t.each(&own)
	}
}

func (s *sample) add(e Ended) {
	s.stride = max(s.stride, 1)
	if (e.Number-1)%s.stride != 0 {
		return
	}
	s.list = append(s.list, e)
	if len(s.list) == MaxSample {
		s.stride *= 2
		s.list = slices.DeleteFunc(s.list, func(e Ended) bool { return (e.Number-1)%s.stride != 0 })
	}
}

// Sample is the requests of a run by which it is measured: those that ended in its window. The window goes from
// the end of the warm-up to the last request sent: in an open loop that is the last arrival, in a closed loop the
// moment from which no new request is sent. What ends later drains from a system that nobody loads any more.
type Sample struct {
	// Requests are those that ended in the window, in the order in which they ended. In the order in which they
	// were sent the first would be the longest and the last the shortest.
	Requests []Ended
	// others are the run's other requests.
	others []Ended
	// Each stands for so many requests: 1, but of a very long run.
	Each int
	// From and To are when the window begins and ends.
	From, To machine.Time
	// Cut is how long the run took to warm up, by the requests in flight (stats.WarmUp).
	Cut machine.Time
	// Steady is false for a run in which the requests in flight never settled.
	Steady bool
	// Scaled says that an autoscaler wanted another number of servers after that: the run is
	// one of its own, and what it came to no sample of how it goes on.
	Scaled bool

	Ledger *Ledger // nil where servers have no price and neither come nor go
	// Gaps are those between tokens, and Load how full the servers were, both of all of
	// the run; nil where nobody told.
	Gaps *gaps.Gaps
	Load []LoadSummary
}

// Sample is what was counted until now, from the requests that ended.
func (t *Tally) Sample() *Sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sample(slices.Clone(t.ended.list))
}

// lastSample is Sample of a run that is over: nothing is counted any more.
func (t *Tally) lastSample() *Sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sample(t.ended.list)
}

func (t *Tally) sample(list []Ended) *Sample {
	x := newSample(list, int(max(t.ended.stride, 1)))
	x.Gaps, x.Load = t.gaps, summarized(t.load)
	x.Ledger, x.Scaled = t.servers.ledger(), t.servers.scaledAfter(x.From)
	return x
}

// Judge says what makes an answer good of the requests that told nothing of it themselves:
// the workload's, which one without classes does not repeat for each.
func (x *Sample) Judge(slo SLO) {
	for i := range x.Requests {
		if e := &x.Requests[i]; !e.Judged {
			e.judge(slo)
		}
	}
}

// Gaps is what counts the gaps between tokens, for engines to tell.
func (t *Tally) Gaps() *gaps.Gaps { return t.gaps }

// Loaded is told how full the servers were in the end.
func (t *Tally) Loaded(list []ServerLoad) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.load = list
}

// Expect makes room for so many requests of a run: memory that is used as they end.
func (t *Tally) Expect(requests int) {
	t.ended.list = make([]Ended, 0, min(max(requests, 0), MaxSample))
}

// SampleOf is the sample of requests that were kept elsewhere: each is given to add. It has
// neither costs nor gaps nor loads.
func SampleOf(requests func(add func(Ended)) error) (*Sample, error) {
	s := sample{stride: 1}
	if err := requests(s.add); err != nil {
		return nil, err
	}
	return newSample(s.list, int(s.stride)), nil
}

// intervals is into how many a run is cut to see whether it settles.
const intervals = 1000

func newSample(list []Ended, each int) *Sample {
	slices.SortFunc(list, func(a,
		b Ended) int {
		return cmp.Or(cmp.Compare(a.ends(), b.ends()), cmp.Compare(a.Number, b.Number))
	})
	x := &Sample{Requests: list, Each: each, Steady: true}
	if len(list) == 0 {
		return x
	}
	x.From, x.To = list[0].Sent, list[0].Sent
	for i := range list {
		x.From, x.To = min(x.From, list[i].Sent), max(x.To, list[i].Sent)
	}
	end := list[len(list)-1].ends()
	atOnce := x.To-x.From < (end-x.From)/2 // most of them
	if atOnce {
		x.To = end
	}
	if inFlight := x.InFlight(min(intervals, len(list)/5)); len(inFlight) > 0 {
		cut := stats.WarmUp(inFlight)
		x.Steady = settled(inFlight[cut:])
		x.Cut = (x.To - x.From) / machine.Time(len(inFlight)) * machine.Time(cut)
		if x.Cut = max(x.Cut, x.burst(stats.Mean(inFlight[cut:]))); !atOnce {
			x.Cut = max(x.Cut, x.slowest())
		}
	}
	x.window(x.From+x.Cut, x.To, func(*Ended) bool { return true })
	return x
}

// window narrows the window to these times, and the requests to those of them that keep allows.
func (x *Sample) window(from, to machine.Time, keep func(*Ended) bool) {
	x.From, x.To = from, to
	list := x.Requests[:0]
	for i := range x.Requests {
		if e := x.Requests[i]; e.ends() >= from && e.ends() <= to && keep(&e) {
			list = append(list, e)
		} else {
			x.others = append(x.others, e)
		}
	}
	x.Requests = list
}

// burst returns how long what was sent at once takes to leave, 0 where requests come one by one. Clients of a
// closed loop all begin together, and wait for each other as they never do again. They have all sent before the
// first request ends, and are more than half of those in flight later on.
func (x *Sample) burst(level float64) (until machine.Time) {
	n, firstEnd := 0, x.Requests[0].ends()
	for i := range x.Requests {
		if e := &x.Requests[i]; e.Sent < firstEnd {
			n++
			until = max(until, e.ends()-x.From)
		}
	}
	if float64(n*x.Each) < level/2 {
		return 0
	}
	return min(until, (x.To-x.From)/2)
}

// slowest returns how long all but one in a hundred requests take at most: what ends before is short, since nothing
// that takes long has had the time to end. It is no more than a quarter of the window.
func (x *Sample) slowest() machine.Time {
	took := make([]machine.Time, len(x.Requests))
	for i := range x.Requests {
		took[i] = x.Requests[i].E2E
	}
	slices.Sort(took)
	return min(stats.Quantile(took, 0.99), (x.To-x.From)/4)
}

func (e *Ended) ends() machine.Time { return e.Sent + e.E2E }

// InFlight returns how many requests were in flight on average in each of n equal
// parts of the window, nil where it has no length.
func (x *Sample) InFlight(n int) []float64 {
	width := 0.0
	if n > 0 {
		width = float64(x.To-x.From) / float64(n)
	}
	if width <= 0 {
		return nil
	}
	// Each request adds the part of an interval that it was in flight for: at the ends a part,
	// in between all of it, which is a difference summed up.
	part, whole := make([]float64, n+1), make([]float64, n+2)
	for _, list := range [][]Ended{x.Requests, x.others} {
		for i := range list {
			e := &list[i]
			from, to := max(float64(e.Sent-x.From)/width, 0), min(float64(e.ends()-x.From)/width, float64(n))
			if to <= from {
				continue
			}
			a, b := min(int(from), n), min(int(to), n)
			if a == b {
				part[a] += to - from
				continue
			}
			part[a] += float64(a+1) - from
			part[b] += to - float64(b)
			whole[a+1]++
			whole[b]--
		}
	}
	out, sum := make([]float64, n), 0.0
	for i := range out {
		sum += whole[i]
		out[i] = (sum + part[i]) * float64(x.Each)
	}
	return out
}

// settled says whether the requests in flight vary around a level, and do not grow: over ten parts of the series,
// by more than chance and by more than half of what there is. A series that amounts to next to no independent
// observations has no level that it returns to, unless it varies by far less than the services alone explain: where
// nobody waits and requests come at random, its variance is its mean. Regular arrivals leave a smooth beat with the
// parts of the series, which looks like a long memory.
func settled(inFlight []float64) bool {
	const parts = 10
	if len(inFlight) < 2*parts {
		return true
	}
	var means []float64
	for part := range slices.Chunk(inFlight[:len(inFlight)/parts*parts], len(inFlight)/parts) {
		means = append(means, stats.Mean(part))
	}
	slope, sure := stats.Slope(means)
	if sure > 4 && slope*parts > stats.Mean(means)/2 {
		return false
	}
	return stats.Spread(inFlight, len(inFlight)) <= stats.Mean(inFlight)/4 ||
		stats.Independent(inFlight) >= fewestIndependent
}

// fewestIndependent is to how many independent observations the requests in flight of a steady run amount at least.
// A queue at its server's capacity returns to no level, and amounts to fewer however long the run is.
const fewestIndependent = 12

// endedAs is told of a request of the run that has its outcome.
func (t *Tally) endedAs(r *openRequest, id string, f fate, at machine.Time) {
	number, ok := record.RequestNumber(id)
	if !ok || !r.sent {
		return
	}
	e := Ended{Number: int32(min(number, 1<<31-1)), Sent: r.sentAt, E2E: max(at-r.sentAt, 0),
		Completed: f.outcome == record.Completed,
		Prompt:    int32(min(r.asked, 1<<31-1)), Cached: int32(min(r.cached, 1<<31-1)),
		Tokens: int32(min(r.tokens, 1<<31-1))}
	if r.firstAt > 0 {
		e.TTFT = max(r.firstAt-r.sentAt, 0)
	}
	e.judge(r.slo)
	t.good.ended(r.class, r.slo, &e)
	t.pools.ended(r, f.outcome, &e)
	if t.rows != nil {
		t.rowOf(r, id, f, e)
	}
	t.keep(e)
	t.series.ended(&e, f.outcome, at)
	if e.Completed {
		t.output += float64(e.Tokens)
	}
}
