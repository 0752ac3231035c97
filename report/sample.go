package report

import (
	"cmp"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/gaps"
	"github.com/windtunnel/windtunnel/report/stats"
)

// Ended is a request of the run that has its outcome.
type Ended struct {
	// Sent is when its client sent it.
	Sent machine.Time
	// TTFT and E2E are the times from there to the first and the last token. E2E of a request that did not complete is
	// the time to its failure.
	TTFT, E2E machine.Time
	// Number is the request's number, from 1. It is the same in every run with one seed.
	Number int32
	// Prompt is how many tokens the prompt had, Cached how many of them the prefilling server had cached, and Tokens
	// how many tokens the answer had.
	Prompt, Cached, Tokens int32
	// Completed says that the whole answer arrived, Judged that the request carried an SLO, its class's or the
	// workload's, and Good that it kept this SLO.
	Completed, Judged, Good bool
}

// TPOT is the time for each output token after the first, in seconds, as vLLM's benchmark defines it. It is false where
// there is no second token.
func (e *Ended) TPOT() (seconds float64, ok bool) {
	if e.Tokens < 2 || e.E2E < e.TTFT {
		return 0, false
	}
	return (e.E2E - e.TTFT).Seconds() / float64(e.Tokens-1), true
}

// MaxSample bounds how many requests of a run are kept. Of more, one in two is kept, one in four, and so on.
const MaxSample = 1 << 19

// sample keeps requests as they end, evenly thinned where there are too many.
type sample struct {
	list   []Ended
	stride int32
}

// OnEnded sets a function that the tally calls for every request that ends, including those that its sample leaves out.
// Set it before the first event.
func (t *Tally) OnEnded(to func(*Ended)) { t.each = to }

// keep adds a request that has ended to the sample, and reports it to OnEnded.
func (t *Tally) keep(e Ended) {
	t.ended.add(e)
	if t.each != nil {
		own := e // a copy here keeps e off the heap without the callback
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

// Sample has the requests that a run is measured by: those that ended in its window. The window begins at the end of
// the warm-up. It ends when the client sends the last request, which in a closed loop is the time from which no new
// request follows. Requests that end later leave a system whose load is gone.
type Sample struct {
	// Requests ended in the window, in the order in which they ended. In the order of sending, the first would be the
	// longest and the last the shortest.
	Requests []Ended
	// others are the run's other requests.
	others []Ended
	// Each is how many requests one of Requests stands for: 1, except in a very long run.
	Each int
	// From and To are when the window begins and ends.
	From, To machine.Time
	// Cut is how long the run took to warm up, by the requests in flight (stats.WarmUp).
	Cut machine.Time
	// Steady is false for a run in which the requests in flight never settled.
	Steady bool
	// Scaled says that an autoscaler changed the number of servers after the warm-up. Parts of such a run are no
	// samples of one steady state.
	Scaled bool

	Ledger *Ledger // nil where servers are fixed and have no price
	// Gaps are between tokens, and Load is how busy the servers were, both over the whole run. They are nil where
	// nothing reports them.
	Gaps *gaps.Gaps
	Load []LoadSummary
}

// Sample returns the sample of the requests that have ended.
func (t *Tally) Sample() *Sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sample(slices.Clone(t.ended.list))
}

// lastSample is Sample for a run that is over. It does not copy the requests.
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

// Judge applies an SLO to the requests that carried none, such as those of a workload without classes.
func (x *Sample) Judge(slo record.SLO) {
	for i := range x.Requests {
		if e := &x.Requests[i]; !e.Judged {
			e.judge(slo)
		}
	}
}

// Gaps returns the counter of the gaps between tokens, for engines.
func (t *Tally) Gaps() *gaps.Gaps { return t.gaps }

// SetLoads sets how busy the servers were. Call it at the end of a run.
func (t *Tally) SetLoads(list []ServerLoad) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.load = list
}

// Expect allocates memory for this many requests.
func (t *Tally) Expect(requests int) {
	t.ended.list = make([]Ended, 0, min(max(requests, 0), MaxSample))
}

// SampleOf returns a sample of requests from elsewhere. The function passes each of them to add. The sample has no
// costs, gaps and loads.
func SampleOf(requests func(add func(Ended)) error) (*Sample, error) {
	s := sample{stride: 1}
	if err := requests(s.add); err != nil {
		return nil, err
	}
	return newSample(s.list, int(s.stride)), nil
}

// intervals is how many parts a run is cut into, to see whether it settles.
const intervals = 1000

func newSample(list []Ended, each int) *Sample {
	machine.SortFunc(list, func(a,
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

// window narrows the window to these times, and the requests to those in it that keep allows.
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

// burst returns how long requests that were sent at once take to leave, 0 where requests come one by one. All clients
// of a closed loop begin together, and their requests wait for each other as they never do again. They are all sent
// before the first request ends, and are more than half of those in flight later.
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

// slowest returns the 99th percentile of the requests' times, at most a quarter of the window. Requests that end
// earlier are short, because long ones cannot have ended yet.
func (x *Sample) slowest() machine.Time {
	took := make([]machine.Time, len(x.Requests))
	for i := range x.Requests {
		took[i] = x.Requests[i].E2E
	}
	slices.Sort(took)
	return min(stats.Quantile(took, 0.99), (x.To-x.From)/4)
}

func (e *Ended) ends() machine.Time { return e.Sent + e.E2E }

// InFlight returns the mean number of requests in flight in each of n equal parts of the window, nil where the window
// has no length.
func (x *Sample) InFlight(n int) []float64 {
	width := 0.0
	if n > 0 {
		width = float64(x.To-x.From) / float64(n)
	}
	if width <= 0 {
		return nil
	}
	// A request adds to each interval the share of it that it was in flight: less than 1 at its ends, and 1 in between,
	// which whole has as differences.
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

// settled reports whether the requests in flight vary around a level and do not grow: over ten parts of the series, by
// more than chance and by more than half of their mean. A series that amounts to very few independent observations has
// no level that it returns to, unless it varies by far less than independent arrivals explain: if nobody waits and
// requests come at random, its variance equals its mean. Regular arrivals beat smoothly with the parts of the series,
// which looks like a long memory.
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

// fewestIndependent is the least number of independent observations that the requests in flight of a steady run amount
// to. A queue at its server's capacity returns to no level, and amounts to fewer in a run of any length.
const fewestIndependent = 12

// finish counts a request of the run that has its outcome.
func (t *Tally) finish(r *openRequest, id string, f ending, at machine.Time) {
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
		t.addRow(r, id, f, e)
	}
	t.keep(e)
	t.series.ended(&e, f.outcome, at)
	if e.Completed {
		t.output += float64(e.Tokens)
	}
}
