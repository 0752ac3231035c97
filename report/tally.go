package report

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Tally counts events and measures spans as they come. It keeps memory in
// proportion to the requests in flight, not to those that have been.
//
// It is safe for concurrent use.
type Tally struct {
	mu       sync.Mutex
	index    spanIndex
	hist     []*hdrhistogram.Histogram // per span, in microseconds
	largest  []machine.Time            // per span: the histogram rounds
	outcomes map[flow.Outcome]int
	steps    map[flow.Hop]map[flow.Step]int
	pods     map[string]int
	open     map[string]*openRequest
	closed   []string // finished ones whose late events may still come, oldest first
	finished int
	last     machine.Time
	cache    cacheTally
}

type openRequest struct {
	begun  map[spanKey]machine.Time
	done   bool
	sent   bool
	first  machine.Time
	spans  map[string]machine.Time // what was measured, for the compact view
	server string
	prompt int // tokens at a model server, until its cache was asked
}

type spanKey struct{ attempt, span int }

// lateRequests is how many finished requests are remembered for events that
// other goroutines report after the client's last.
const lateRequests = 4096

// longestSpan bounds the histograms; longer spans count as this long.
const longestSpan = 24 * 3600 * machine.Second

// NewTally begins to count.
func NewTally() *Tally {
	t := &Tally{
		index:    newSpanIndex(),
		outcomes: map[flow.Outcome]int{},
		steps:    map[flow.Hop]map[flow.Step]int{},
		pods:     map[string]int{},
		open:     map[string]*openRequest{},
	}
	t.hist = make([]*hdrhistogram.Histogram, len(t.index.spans))
	t.largest = make([]machine.Time, len(t.index.spans))
	return t
}

// Record takes one event into account.
func (t *Tally) Record(e flow.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = max(t.last, e.Time)
	if t.steps[e.Hop] == nil {
		t.steps[e.Hop] = map[flow.Step]int{}
	}
	t.steps[e.Hop][e.Step]++
	if e.Request == "" {
		return // an event of a server's own
	}
	r := t.open[e.Request]
	if r == nil {
		r = &openRequest{begun: map[spanKey]machine.Time{}, spans: map[string]machine.Time{}, first: e.Time}
		t.open[e.Request] = r
	}
	t.cache.record(r, &e)
	at := flow.At{Hop: e.Hop, Step: e.Step}
	for _, i := range t.index.begins[at] {
		key := spanKey{e.Attempt, i}
		if _, twice := r.begun[key]; !twice {
			r.begun[key] = e.Time
		}
	}
	for _, i := range t.index.ends[at] {
		key := spanKey{e.Attempt, i}
		if from, ok := r.begun[key]; ok && e.Time >= from {
			if !t.index.spans[i].Completed {
				t.measure(i, e.Time-from)
			}
			r.spans[t.index.spans[i].Name] = e.Time - from
			delete(r.begun, key)
		}
	}
	switch {
	case at == flow.At{Hop: flow.Client, Step: flow.RequestSent}:
		r.sent, r.first = true, e.Time
	case at == flow.At{Hop: flow.EPP, Step: flow.EndpointPicked} && e.Endpoint != "":
		t.pods[e.Endpoint]++
		r.server = e.Endpoint
	case at == flow.At{Hop: flow.Client, Step: flow.Finished} && !r.done:
		r.done = true
		t.finished++
		t.outcomes[outcomeOf(e)]++
		if outcomeOf(e) == flow.Completed {
			t.completed(r)
		}
		t.forget(e.Request)
	case !r.sent && !r.done && last[at]: // a client of somebody else's
		r.done = true
		t.forget(e.Request)
	}
}

// last are the steps after which nothing more is to be expected of a request
// whose client does not report.
var last = map[flow.At]bool{
	{Hop: flow.EPP, Step: flow.ResponseEndSeen}: true,
	{Hop: flow.EPP, Step: flow.Answered}:        true,
	{Hop: flow.EPP, Step: flow.StreamFailed}:    true,
	{Hop: flow.Envoy, Step: flow.Logged}:        true,
}

// forget keeps the last finished requests for late events and drops older ones.
func (t *Tally) forget(request string) {
	t.closed = append(t.closed, request)
	if len(t.closed) >= 2*lateRequests {
		for _, id := range t.closed[:lateRequests] {
			delete(t.open, id)
		}
		t.closed = append(t.closed[:0], t.closed[lateRequests:]...)
	}
}

// completed measures the spans that only a completed request has.
func (t *Tally) completed(r *openRequest) {
	for i, s := range t.index.spans {
		if d, ok := r.spans[s.Name]; ok && s.Completed {
			t.measure(i, d)
		}
	}
}

func (t *Tally) measure(i int, d machine.Time) {
	if t.hist[i] == nil {
		t.hist[i] = hdrhistogram.New(1, int64(longestSpan/machine.Microsecond), 3)
	}
	t.largest[i] = max(t.largest[i], d)
	// The value is inside the histogram's bounds, the only error there is.
	_ = t.hist[i].RecordValue(int64(min(d, longestSpan) / machine.Microsecond))
}

// outcomeOf is the outcome that a finished event tells.
func outcomeOf(e flow.Event) flow.Outcome {
	switch o := e.Details.Get("outcome").(type) {
	case string:
		return flow.Outcome(o)
	case flow.Outcome:
		return o
	}
	return flow.Broken
}

// Counts are the requests sent and finished until now.
func (t *Tally) Counts() (sent, finished int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.steps[flow.Client][flow.RequestSent], t.finished
}

// request is what is known of a request that is in flight or ended lately.
func (t *Tally) request(id string) (spans map[string]machine.Time, server string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.open[id]; r != nil {
		return r.spans, r.server
	}
	return nil, ""
}

// Summary is what was counted until now.
func (t *Tally) Summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Summary{
		Duration: t.last.Seconds(),
		Requests: t.steps[flow.Client][flow.RequestSent],
		Outcomes: map[flow.Outcome]int{},
		Hops:     map[flow.Hop]map[flow.Step]int{},
	}
	for o, n := range t.outcomes {
		s.Outcomes[o] = n
	}
	s.Unfinished = max(0, s.Requests-t.finished)
	for hop, steps := range t.steps {
		s.Hops[hop] = map[flow.Step]int{}
		for step, n := range steps {
			s.Hops[hop][step] = n
		}
	}
	if len(t.pods) > 0 {
		s.Endpoints = map[string]int{}
		for pod, n := range t.pods {
			s.Endpoints[pod] = n
		}
	}
	s.PrefixCache = t.cache.summary()
	for i, h := range t.hist {
		if h == nil {
			continue
		}
		most := t.largest[i].Seconds()
		at := func(q float64) float64 { return min(round(float64(h.ValueAtQuantile(q))/1e6), most) }
		s.Spans = append(s.Spans, SpanSummary{Name: t.index.spans[i].Name, Count: int(h.TotalCount()),
			P50: at(50), P90: at(90), P99: at(99), Max: most})
	}
	return s
}

// round takes away the digits that floating point adds to a microsecond count.
func round(seconds float64) float64 {
	f, err := strconv.ParseFloat(fmt.Sprintf("%.6f", seconds), 64)
	if err != nil {
		return seconds
	}
	return f
}
