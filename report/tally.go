package report

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/gaps"
)

// Tally counts events and measures spans. Its memory is proportional to the requests in flight, not to those that have
// ended, and bounded, since a recording may hold anything.
//
// It is safe for concurrent use.
type Tally struct {
	mu       sync.Mutex
	index    spanIndex
	spans    []latencies // per span
	outcomes counts[record.Outcome]
	steps    map[record.Hop]counts[record.Step]
	followed
	byServer
	trouble
	finished    int
	last        machine.Time
	sentTo      machine.Time // when the last request was sent
	lives       int          // requests that were recorded as a whole
	sending     int          // requests in flight that will be
	cache       cacheTally
	transfers   transferTally
	ended       sample
	good        goodput
	pools       pools
	servers     servers
	output      float64 // tokens of completed requests
	predictions predictionTally
	byHand      ByHand
	gaps        *gaps.Gaps
	load        []ServerLoad
	each        func(*Ended) // called for every request that has its outcome; may be nil
	rows        *rows        // nil without a table
	series      *Series      // nil without a page
}

// followed are the requests that a tally remembers.
type followed struct {
	open   *simplelru.LRU[string, *openRequest] // the request without an event for longest goes first
	free   []*openRequest                       // dropped from open, to be used again
	closed []string                             // finished requests whose late events may still come, oldest first
	lost   int                                  // dropped from open before they had ended
}

// byServer counts the requests of each server.
type byServer struct {
	pods     counts[string] // by the picker
	prefills counts[string] // by the server of a prefill leg
	upstream counts[string] // from Envoy's log, for pickers that do not report
	reached  counts[string] // from the model servers, without a picker and Envoy's log
}

// trouble has everything that went wrong.
type trouble struct {
	failed    map[record.Outcome][]string       // ids of the first requests that did not complete
	reasons   map[record.Outcome]counts[string] // why requests did not complete
	refusals  counts[string]
	incidents []Incident
	warnings  []Warning
}

type openRequest struct {
	begun  []spanAt // and not ended
	spans  []spanAt // measured spans: at is the length
	done   bool
	sent   bool
	server string
	byHand bool // not from the run's own client
	prompt int  // tokens at a model server, until its cache is looked up

	sentAt, firstAt       machine.Time
	asked, cached, tokens int    // of the prompt, of those cached, of the answer
	class                 string // of traffic
	pool                  *poolCount
	slo                   record.SLO
	prefiller             string // the server of the sidecar's prefill leg
	prefilled             bool   // that server has computed the prompt
	refusal               string // the last one
}

type spanAt struct {
	attempt int32
	span    int32
	at      machine.Time
}

// Bounds of what is kept.
const (
	// lateRequests bounds the finished requests that are remembered, for events that other goroutines report after the
	// client's last.
	lateRequests = 4096
	// maxOpen bounds the requests that are followed at once, if their number is unknown.
	maxOpen = 1 << 18
	// maxBegun bounds the spans of one request that have begun, since retries begin them again.
	maxBegun = 64
	// Bounds of the names that are counted. Further names count as "other".
	maxHops, maxSteps, maxOutcomes, maxEndpoints = 32, 256, 64, 1 << 16
	// maxFailed bounds the ids that are kept for one outcome.
	maxFailed = 5
	// longestName bounds the length of a name that is counted. Longer request ids are remembered by their hash.
	longestName = 256
)

// longestSpan bounds the histograms. It is above any time of a run.
const longestSpan = machine.Time(math.MaxInt64)

// counts counts by name, with a bounded number of names.
type counts[K ~string] map[K]int

const otherName = "other"

func (c counts[K]) add(name K, most int) {
	if _, known := c[name]; !known {
		if len(c) >= most || len(name) > longestName {
			name = otherName
		}
		name = K(strings.Clone(string(name)))
	}
	c[name]++
}

// bounded returns the entry of a name, and adds it if there is none. Of more than so many names, and for a long name,
// it returns the entry of "other".
func bounded[K ~string, V any](entries map[K]V, name K, most int, add func(name K) V) V {
	v, known := entries[name]
	if known {
		return v
	}
	if len(entries) >= most || len(name) > longestName {
		name = otherName
	}
	if v, known = entries[name]; !known {
		name = K(strings.Clone(string(name)))
		v = add(name)
		entries[name] = v
	}
	return v
}

// idOf returns the key that a request is remembered by.
func idOf(request string) string {
	if len(request) <= longestName {
		return request
	}
	return fmt.Sprintf("%s… %x", request[:64], sha256.Sum256([]byte(request)))
}

// NewTally returns an empty tally.
func NewTally() *Tally { return NewTallyFor(0) }

// NewTallyFor returns an empty tally for so many requests in flight, 0 if unknown.
func NewTallyFor(inFlight int) *Tally {
	t := &Tally{
		index:    newSpanIndex(),
		outcomes: counts[record.Outcome]{},
		steps:    map[record.Hop]counts[record.Step]{},
		byServer: byServer{counts[string]{}, counts[string]{}, counts[string]{}, counts[string]{}},
		trouble:  trouble{failed: map[record.Outcome][]string{}, reasons: map[record.Outcome]counts[string]{}},
		gaps:     gaps.New(),
		byHand:   ByHand{Statuses: counts[string]{}, Endpoints: counts[string]{}},
	}
	// The size is above 0, the only error there is.
	t.open, _ = simplelru.NewLRU(max(maxOpen, inFlight), func(_ string, r *openRequest) {
		if !r.done {
			t.lost++
		}
		if len(t.free) < lateRequests {
			t.free = append(t.free, r)
		}
	})
	t.spans = make([]latencies, len(t.index.spans))
	return t
}

// newRequest returns an empty request, in the memory of a dropped one if there is one.
func (t *Tally) newRequest(byHand bool) *openRequest {
	n := len(t.free)
	if n == 0 {
		return &openRequest{byHand: byHand}
	}
	r := t.free[n-1]
	t.free = t.free[:n-1]
	*r = openRequest{begun: r.begun[:0], spans: r.spans[:0], byHand: byHand}
	return r
}

// Explained implements record.Selective. A tally reads no reasons.
func (t *Tally) Explained() int { return 0 }

// Detailed implements record.Selective.
func (t *Tally) Detailed() bool { return false }

// Record counts one event.
func (t *Tally) Record(e record.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = max(t.last, e.Time)
	at := record.At{Hop: e.Hop, Step: e.Step}
	t.noteWarning(&e)
	if e.Request == "" {
		t.step(e.Hop).add(e.Step, maxSteps)
		t.servers.record(&e)
		t.noteIncident(&e)
		return // an event of a server, not of a request
	}
	id := idOf(e.Request)
	r, known := t.open.Get(id)
	if !known {
		_, ours := record.RequestNumber(id)
		r = t.newRequest(!ours && at != sent)
		t.open.Add(id, r)
		if r.byHand {
			t.byHand.Requests++
		}
	}
	if r.byHand {
		t.countByHand(&e)
	} else {
		t.step(e.Hop).add(e.Step, maxSteps)
		t.cache.record(r, &e)
		t.transfers.record(&e)
		t.noteRefusal(r, &e)
	}
	leg := e.Hop == record.Server && e.Endpoint != "" && e.Endpoint == r.prefiller
	borders := t.index.of[at]
	for _, i := range borders.begins {
		if t.index.spans[i].Leg == leg && r.at(e.Attempt, i) < 0 && len(r.begun) < maxBegun {
			r.begun = append(r.begun, spanAt{int32(e.Attempt), int32(i), e.Time})
		}
	}
	for _, i := range borders.ends {
		if j := r.at(e.Attempt, i); t.index.spans[i].Leg == leg && j >= 0 && e.Time >= r.begun[j].at {
			took := e.Time - r.begun[j].at
			if !t.index.spans[i].Completed && !r.byHand {
				t.measure(i, took, id)
			}
			r.took(i, took)
			r.begun = slices.Delete(r.begun, j, j+1)
		}
	}
	switch {
	case at == sent:
		if r.sent, r.sentAt, t.sentTo = true, e.Time, max(t.sentTo, e.Time); !r.byHand {
			r.class, r.slo = t.good.sent(detail(&e, "class"), detail(&e, "slo"))
			t.good.sending()
			t.series.sent(e.Time)
		}
	case at == record.At{Hop: record.Client, Step: record.FirstTokenReceived}:
		r.firstAt = e.Time
	case at == record.At{Hop: record.Sidecar, Step: record.PrefillLegSent} && e.Endpoint != "":
		if r.prefiller = ""; len(e.Endpoint) <= longestName {
			r.prefiller = e.Endpoint
		}
		if !r.byHand {
			t.prefills.add(e.Endpoint, maxEndpoints)
		}
	case at == record.At{Hop: record.Sidecar, Step: record.PrefillLegFailed}:
		r.prefilled = false
	case at == record.At{Hop: record.EPP, Step: record.RequestReceived} && !r.byHand:
		t.pools.received(r, &e)
	case at == record.At{Hop: record.EPP, Step: record.PredictionChecked}:
		if !r.byHand {
			t.predictions.record(&e)
		}
	case at == record.At{Hop: record.EPP, Step: record.EndpointPicked} && e.Endpoint != "":
		if !r.byHand {
			t.pods.add(e.Endpoint, maxEndpoints)
		}
		r.server = e.Endpoint
		if len(r.server) > longestName {
			r.server = otherName
		}
	case at == record.At{Hop: record.Envoy, Step: record.Logged} && e.Endpoint != "" && !r.byHand:
		t.upstream.add(e.Endpoint, maxEndpoints)
	// without a picker
	case (e.Hop == record.Server || e.Hop == record.Sidecar) && r.server == "" && e.Endpoint != "" &&
		len(e.Endpoint) <= longestName:
		if r.server = e.Endpoint; !r.byHand {
			t.reached.add(e.Endpoint, maxEndpoints)
		}
	case at == record.At{Hop: record.Client, Step: record.Finished} && !r.done:
		r.done = true
		t.finished++
		f := endingOf(e, r.refusal)
		o := f.outcome
		t.outcomes.add(o, maxOutcomes)
		t.noteFailure(f)
		r.tokens, _ = whole(e.Details.Get("tokens"))
		t.finish(r, id, f, e.Time)
		if o == record.Completed {
			for _, x := range r.spans {
				if t.index.spans[x.span].Completed {
					t.measure(int(x.span), x.at, id)
				}
			}
		} else if len(t.failed[o]) < maxFailed && t.outcomes[o] > 0 { // an outcome beyond maxOutcomes has no ids
			t.failed[o] = append(t.failed[o], id)
		}
		t.retire(id)
	case !r.sent && !r.done && Last[at]: // from a client that does not report
		r.done = true
		t.retire(id)
	}
}

// sent is the first step of a request of the run.
var sent = record.At{Hop: record.Client, Step: record.RequestSent}

// countByHand counts an event of a request that did not come from the run's own client.
func (t *Tally) countByHand(e *record.Event) {
	switch at := (record.At{Hop: e.Hop, Step: e.Step}); {
	case at == record.At{Hop: record.EPP, Step: record.EndpointPicked} && e.Endpoint != "":
		counts[string](t.byHand.Endpoints).add(e.Endpoint, maxEndpoints)
	case at == record.At{Hop: record.Envoy, Step: record.Logged}:
		if n, ok := whole(e.Details.Get("status")); ok {
			counts[string](t.byHand.Statuses).add(strconv.Itoa(n), maxOutcomes)
		}
	}
}

// step returns the counts of a hop's steps.
func (t *Tally) step(hop record.Hop) counts[record.Step] {
	if steps := t.steps[hop]; steps != nil {
		return steps
	}
	return bounded(t.steps, hop, maxHops, func(record.Hop) counts[record.Step] { return counts[record.Step]{} })
}

// at returns the index in begun of a span of an attempt, or -1.
func (r *openRequest) at(attempt, span int) int {
	return slices.IndexFunc(r.begun, func(b spanAt) bool { return int(b.attempt) == attempt && int(b.span) == span })
}

// took sets the length of a span. Of several attempts, the last counts.
func (r *openRequest) took(span int, d machine.Time) {
	for i := range r.spans {
		if int(r.spans[i].span) == span {
			r.spans[i].at = d
			return
		}
	}
	r.spans = append(r.spans, spanAt{span: int32(span), at: d})
}

// Last are the steps after which a request has no further event, if its client does not report.
var Last = map[record.At]bool{
	{Hop: record.EPP, Step: record.ResponseEndSeen}: true,
	{Hop: record.EPP, Step: record.Answered}:        true,
	{Hop: record.EPP, Step: record.StreamFailed}:    true,
	{Hop: record.Envoy, Step: record.Logged}:        true,
}

// retire keeps the latest finished requests for late events, and drops older ones.
func (t *Tally) retire(request string) {
	t.closed = append(t.closed, request)
	if len(t.closed) >= 2*lateRequests {
		for _, id := range t.closed[:lateRequests] {
			t.open.Remove(id)
		}
		t.closed = append(t.closed[:0], t.closed[lateRequests:]...)
	}
}

func (t *Tally) measure(i int, d machine.Time, id string) {
	l := &t.spans[i]
	if d > l.most || l.slowest == "" || d == l.most && before(id, l.slowest) {
		l.slowest = id
	}
	l.add(d, 1)
}

// before reports whether an id is of an earlier request than another.
func before(id, other string) bool {
	n, _ := record.RequestNumber(id)
	m, ours := record.RequestNumber(other)
	return ours && n < m
}

// OutcomeOf returns the outcome of a finished event, broken if the event has none.
func OutcomeOf(e record.Event) record.Outcome {
	switch o := e.Details.Get("outcome").(type) {
	case string:
		return record.Outcome(o)
	case record.Outcome:
		return o
	}
	return record.Broken
}

// endingOf returns how a request ended, from its finished event and its last refusal.
func endingOf(e record.Event, refusal string) ending {
	f := ending{outcome: OutcomeOf(e), refusal: refusal}
	f.status, _ = whole(e.Details.Get("status"))
	f.reason, _ = e.Details.Get("reason").(string)
	f.reason = f.reason[:min(len(f.reason), longestName)]
	return f
}

// whyNot returns why requests did not complete, by outcome.
func (t *Tally) whyNot() map[record.Outcome]counts[string] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reasons
}

// Counts returns the number of requests sent and finished so far.
func (t *Tally) Counts() (sent, finished int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests(), t.finished
}

// requests returns the number of requests sent.
func (t *Tally) requests() int {
	return t.steps[record.Client][record.RequestSent] + t.lives + t.sending
}

// sentByHand reports whether a request did not come from the run's own client.
func (t *Tally) sentByHand(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byHand.Requests == 0 {
		return false
	}
	r, known := t.open.Get(idOf(id))
	return known && r.byHand
}

// request returns the measured spans and the server of a request that is in flight or ended recently.
func (t *Tally) request(id string) (spans map[string]machine.Time, server string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, known := t.open.Get(idOf(id))
	if !known {
		return nil, ""
	}
	spans = make(map[string]machine.Time, len(r.spans))
	for _, s := range r.spans {
		spans[t.index.spans[s.span].Name] = s.at
	}
	return spans, r.server
}

// Summary returns a summary of the events so far.
func (t *Tally) Summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Summary{
		Duration: t.last.Seconds(),
		Requests: t.requests(),
		Outcomes: maps.Clone(t.outcomes),
		Hops:     map[record.Hop]map[record.Step]int{},
		Dropped:  t.lost,
	}
	if t.byHand.Requests > 0 {
		x := ByHand{t.byHand.Requests, maps.Clone(t.byHand.Statuses), maps.Clone(t.byHand.Endpoints)}
		s.ByHand = &x
	}
	s.Unfinished = max(0, s.Requests-t.finished)
	for hop, steps := range t.steps {
		s.Hops[hop] = maps.Clone(steps)
	}
	t.addLives(s.Hops)
	if len(t.failed)+s.Unfinished > 0 {
		s.NotCompleted = map[record.Outcome][]string{}
		for o, ids := range t.failed {
			s.NotCompleted[o] = slices.Clone(ids)
		}
		for _, id := range t.open.Keys() {
			if r, _ := t.open.Peek(id); r.sent && !r.done && len(s.NotCompleted[unfinished]) < maxFailed {
				s.NotCompleted[unfinished] = append(s.NotCompleted[unfinished], id)
			}
		}
	}
	for _, c := range []counts[string]{t.pods, t.upstream, t.reached} {
		if len(c) > 0 {
			s.Endpoints = maps.Clone(c)
			break
		}
	}
	if len(t.prefills) > 0 {
		s.PrefillServers = maps.Clone(t.prefills)
	}
	s.Classes = t.good.summary(t.sentTo, t.last)
	s.Pools = t.pools.summary(t.pods, t.prefills)
	s.Servers = t.servers.summary(t.last)
	s.Cost = costs(s.Servers, t.output)
	s.Refusals, s.Incidents = maps.Clone(t.refusals), slices.Clone(t.incidents)
	s.Predictions, s.Load = t.predictions.summary(), summarized(t.load)
	s.PrefixCache, s.Transfers, s.Warnings = t.cache.summary(), t.transfers.summary(), slices.Clone(t.warnings)
	for i := range t.spans {
		if x := t.spans[i].summary(t.index.spans[i].Name); x != nil {
			s.Spans = append(s.Spans, *x)
		}
	}
	return s
}

// round rounds to six decimals, microseconds, and removes the error of floats.
func round(seconds float64) float64 {
	f, _ := strconv.ParseFloat(fmt.Sprintf("%.6f", seconds), 64) // of the library's own text
	return f
}
