package web

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
)

// Metrics are a report's measurements of the run so far. *report.Session implements it.
type Metrics interface {
	Summary() report.Summary
	Series() *report.Series
	Request(id string) (spans map[string]machine.Time, server string)
}

// limits bound what a Book keeps. Beyond a limit, the oldest data is dropped, and the page says so.
type limits struct{ rows, bytes, changes, names, gauges, notices int }

var usual = limits{rows: 200_000, bytes: 256 << 20, changes: 1 << 18, names: 1 << 16, gauges: 1 << 18, notices: 1 << 12}

// maxRowBytes bounds the recorded steps of one request.
const maxRowBytes = 1 << 20

// The moments of a request, in order.
const (
	sent      = iota // by the client
	atPicker         // the whole request has arrived
	picked           // an endpoint was chosen
	passed           // the picker forwarded the request, or part 1 of a held one
	atSidecar        // the whole request has arrived
	legSent          // prefill leg
	legEnded         // prefill leg
	atServer         // at the decode server, if there are two
	started          // the prefill
	firstSent        // first token, by the model server
	part2Sent        // of a held request
	firstGot         // first token, by the client
	lastSent         // last token, by the model server
	over             // at the client, or at the last hop if the record has no client
	momentCount
)

var moments = map[record.At]int{
	{Hop: record.Client, Step: record.RequestSent}:        sent,
	{Hop: record.EPP, Step: record.RequestReceived}:       atPicker,
	{Hop: record.EPP, Step: record.EndpointPicked}:        picked,
	{Hop: record.EPP, Step: record.Part1Sent}:             passed,
	{Hop: record.EPP, Step: record.RequestPassed}:         passed,
	{Hop: record.Sidecar, Step: record.RequestReceived}:   atSidecar,
	{Hop: record.Sidecar, Step: record.PrefillLegSent}:    legSent,
	{Hop: record.Sidecar, Step: record.PrefillLegEnded}:   legEnded,
	{Hop: record.Server, Step: record.Part1Received}:      atServer,
	{Hop: record.Server, Step: record.RequestReceived}:    atServer,
	{Hop: record.Server, Step: record.PrefillStarted}:     started,
	{Hop: record.Server, Step: record.FirstTokenSent}:     firstSent,
	{Hop: record.EPP, Step: record.Part2Sent}:             part2Sent,
	{Hop: record.Client, Step: record.FirstTokenReceived}: firstGot,
	{Hop: record.Server, Step: record.LastTokenSent}:      lastSent,
	{Hop: record.Client, Step: record.Finished}:           over,
}

// none is a moment that has not happened.
const none machine.Time = -1

// row is one request.
type row struct {
	id                     string
	at                     [momentCount]machine.Time
	endpoint, prefiller    int32 // indexes of names; 0 means none
	model, class, outcome  int32
	prompt, cached, tokens int32
	fetched                int // bytes of KV cache that came from another server or a store
	pool                   int32
	// The priority of a request that its picker has not decided is the one that the picker last gave to a request of
	// its class.
	priority int32
	// With asked, a server has the prompt and has not started its prefill. With prefilled, a prefill server has
	// started, so blocks that the decode server starts with are no hits in its own cache.
	asked, prefilled    bool
	status, attempts    int32
	ttft, total         machine.Time // as the report measured them, or none
	byHand, held, known bool         // known: the record has the request's client
	stage               stage
	version             uint64
	steps               []byte // lines of the record, separated by commas
	dropped             bool   // some steps are missing
}

// stage is a request's stage, for counting.
type stage uint8

const (
	elsewhere stage = iota
	waiting
	running
)

// Book keeps what the page shows of a run. It reads the run's events and bounds everything that it keeps. It is safe
// for concurrent use, and never waits for a browser.
type Book struct {
	limits  limits
	mu      sync.Mutex
	metrics Metrics
	rows    []row
	first   int            // number of dropped rows
	index   map[string]int // from a request's id to its number, counted from the run's first request
	names   []string       // names[0] is ""
	named   map[string]int32
	given   map[int32]int32 // priorities, by class
	changes []int           // numbers of rows, by version
	version uint64          // of the latest change
	bytes   int
	kept    int // the first row that has its steps
	level   report.Level
	now     machine.Time
	gauges  []gauge
	gone    int // number of dropped gauges
	newest  map[int32]gauge
	pods    [][2]string // the names of pods as pickers know them, namespace/name, with their addresses
	notices []notice
	noticed int // number of notices so far
	ended   bool
}

// gauge is a pod's Gauge at a time.
type gauge struct {
	at machine.Time
	Gauge
	pod int32
}

// Gauge holds a pod's metrics as a picker scraped them. Name is the picker's name of the pod, namespace/name.
type Gauge struct {
	Name             string
	Waiting, Running int
	KV               float64 // used fraction of the KV cache
	Ready            bool
	Adapters         []string
}

func (g Gauge) same(o Gauge) bool {
	return g.Name == o.Name && g.Waiting == o.Waiting && g.Running == o.Running && g.KV == o.KV && g.Ready == o.Ready &&
		slices.Equal(g.Adapters, o.Adapters)
}

// notice is an event that belongs to no request: an incident, or an action of the page's user.
type notice struct {
	number int
	text   []byte // the line of the record
}

// NewBook returns the Book of a run that has not started.
func NewBook() *Book { return newBook(usual) }

func newBook(l limits) *Book {
	return &Book{limits: l, index: map[string]int{}, names: []string{""}, named: map[string]int32{"": 0},
		given: map[int32]int32{}, changes: make([]int, l.changes), newest: map[int32]gauge{}}
}

// Measure sets the source of the measurements that the book's frames contain.
func (b *Book) Measure(f Metrics) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.metrics = f
}

// End records that the run has ended.
func (b *Book) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// name returns the index of a name. Once there are too many names, new ones become "other".
func (b *Book) name(text string) int32 {
	if n, ok := b.named[text]; ok {
		return n
	}
	if len(text) > 256 {
		text = strings.ToValidUTF8(text[:256], "") + "…"
	}
	if len(b.names) >= b.limits.names {
		text = "other"
	}
	if n, ok := b.named[text]; ok {
		return n
	}
	text = strings.Clone(text)
	n := int32(len(b.names))
	b.names, b.named[text] = append(b.names, text), n
	return n
}

// Record adds an event.
func (b *Book) Record(e record.Event) {
	line, err := recording.AppendEvent(nil, e)
	if err != nil {
		return // recordings do not have such values either
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = max(b.now, e.Time)
	if e.Request == "" {
		if e.Step == record.EngineStep || e.Step == record.PredictorTrained {
			return // too many to show
		}
		b.notices = append(b.notices, notice{b.noticed, line})
		b.noticed++
		if len(b.notices) > b.limits.notices {
			b.notices = slices.Delete(b.notices, 0, b.limits.notices/4)
		}
		b.version++
		return
	}
	r, n := b.row(&e)
	b.keep(r, n, line)
	b.note(r, &e)
	b.version++
	r.version = b.version
	b.changes[b.version%uint64(len(b.changes))] = n
}

// row returns the row of an event's request and its number.
func (b *Book) row(e *record.Event) (*row, int) {
	n, ok := b.index[e.Request]
	if ok && n >= b.first {
		return &b.rows[n-b.first], n
	}
	if len(b.rows) >= b.limits.rows+b.limits.rows/16 {
		most := len(b.rows) - b.limits.rows
		for i := range b.rows[:most] {
			b.bytes -= len(b.rows[i].steps)
			if b.index[b.rows[i].id] == b.first+i {
				delete(b.index, b.rows[i].id)
			}
		}
		b.rows = slices.Delete(b.rows, 0, most)
		b.first += most
		b.kept = max(b.kept, b.first)
	}
	r := row{id: strings.Clone(e.Request), ttft: none, total: none}
	for i := range r.at {
		r.at[i] = none
	}
	_, ours := record.RequestNumber(e.Request)
	r.known = e.Hop == record.Client
	r.byHand = !ours && !r.known
	r.at[sent] = e.Time
	n = b.first + len(b.rows)
	b.rows = append(b.rows, r)
	b.index[r.id] = n
	b.level.InFlight++
	return &b.rows[len(b.rows)-1], n
}

// keep adds a line to a request's steps, and drops the oldest requests' steps if there is too much.
func (b *Book) keep(r *row, n int, line []byte) {
	if n < b.kept || len(r.steps)+len(line) > maxRowBytes {
		r.dropped = true
		return
	}
	if len(r.steps) > 0 {
		r.steps = append(r.steps, ',')
	}
	before := len(r.steps)
	r.steps = append(r.steps, line...)
	b.bytes += len(r.steps) - before
	for b.bytes > b.limits.bytes && b.kept < b.first+len(b.rows) {
		old := &b.rows[b.kept-b.first]
		b.bytes -= len(old.steps)
		old.steps, old.dropped = nil, true
		b.kept++
	}
}

// note updates a row from an event.
func (b *Book) note(r *row, e *record.Event) {
	at := record.At{Hop: e.Hop, Step: e.Step}
	r.known = r.known || e.Hop == record.Client
	leg := e.Hop == record.Server && r.prefiller != 0 && b.names[r.prefiller] == e.Endpoint
	if m, ok := moments[at]; ok {
		switch {
		case leg: // the page shows the sidecar's moments for it
		case r.at[m] == none || m != sent && m != over && e.Attempt > 1: // the last of several attempts counts
			r.at[m] = e.Time
		}
	}
	number := func(key string, into *int32) {
		*into = int32(min(whole(e.Details.Get(key), int(*into)), 1<<31-1))
	}
	text := func(key string, into *int32) {
		if v, ok := e.Details.Get(key).(string); ok && v != "" {
			*into = b.name(v)
		}
	}
	r.attempts = max(r.attempts, int32(min(e.Attempt, 1<<31-1)))
	switch at {
	case record.At{Hop: record.Client, Step: record.RequestSent}:
		text("class", &r.class)
	case record.At{Hop: record.EPP, Step: record.RequestReceived}:
		text("pool", &r.pool)
		r.priority = b.given[r.class]
	case record.At{Hop: record.EPP, Step: record.EndpointPicked}:
		text("model", &r.model)
		r.endpoint = b.name(e.Endpoint)
		r.priority = priority(e.Details.Get(record.Explanation), r.priority)
		b.given[r.class] = r.priority
	case record.At{Hop: record.EPP, Step: record.Part1Sent}:
		r.held = true
	case record.At{Hop: record.Sidecar, Step: record.PrefillLegSent}:
		r.prefiller = b.name(e.Endpoint)
	case record.At{Hop: record.Server, Step: record.Part1Received},
		record.At{Hop: record.Server, Step: record.RequestReceived}:
		number("prompt_tokens", &r.prompt)
		r.asked = true
		text("model", &r.model)
		if r.endpoint == 0 {
			r.endpoint = b.name(e.Endpoint)
		}
		b.move(r, waiting)
	case record.At{Hop: record.Server, Step: record.PrefillStarted}:
		if r.asked && (leg || !r.prefilled) { // blocks that a preempted request finds again are no hits either
			number("cached_tokens", &r.cached)
		}
		r.asked, r.prefilled = false, r.prefilled || leg
		r.fetched += whole(e.Details.Get("fetched_bytes"), 0)
		b.move(r, running)
	case record.At{Hop: record.Server, Step: record.LastTokenSent}:
		number("tokens", &r.tokens)
		b.move(r, elsewhere)
	case record.At{Hop: record.Server, Step: record.Aborted}, record.At{Hop: record.Server, Step: record.Rejected}:
		b.move(r, elsewhere)
	case record.At{Hop: record.Envoy, Step: record.Logged}:
		number("status", &r.status)
	case record.At{Hop: record.Client, Step: record.Finished}:
		text("outcome", &r.outcome)
		number("status", &r.status)
		number("tokens", &r.tokens)
		b.end(r)
		if b.metrics != nil {
			spans, _ := b.metrics.Request(r.id)
			for name, into := range map[string]*machine.Time{"ttft": &r.ttft, "total": &r.total} {
				if v, ok := spans[name]; ok {
					*into = v
				}
			}
		}
	}
	if report.Last[at] && !r.known && r.at[over] == none {
		r.at[over] = e.Time
		number("status", &r.status)
		if s := int(r.status); s > 0 {
			r.outcome = b.name(string(record.OutcomeOfStatus(s)))
		}
		b.end(r)
	}
	b.series().Level(e.Time, b.level)
}

// priority returns the priority in a decision's explanation: of a live run, or from a recording's JSON. It returns
// without if there is no explanation.
func priority(explanation any, without int32) int32 {
	switch x := explanation.(type) {
	case *picker.Explanation:
		return int32(max(min(x.Priority, math.MaxInt32), math.MinInt32))
	case map[string]any:
		p, _ := x["priority"].(float64) // 0 is left out
		return int32(max(min(p, math.MaxInt32), math.MinInt32))
	}
	return without
}

// whole converts a detail that is a count: an int of a live run, or a float64 from a recording's JSON. It returns
// without if the detail is neither.
func whole(v any, without int) int {
	switch x := v.(type) {
	case int:
		return x
	case float64:
		return int(max(min(x, 1<<53), 0))
	}
	return without
}

func (b *Book) series() *report.Series {
	if b.metrics == nil {
		return nil
	}
	return b.metrics.Series()
}

// end records that a request is no longer in flight.
func (b *Book) end(r *row) {
	b.move(r, elsewhere)
	b.level.InFlight--
	if r.outcome == 0 {
		r.outcome = b.name("ended")
	}
}

// move moves a request to another stage.
func (b *Book) move(r *row, to stage) {
	for s, by := range map[stage]int{r.stage: -1, to: 1} {
		if r.stage == to {
			return
		}
		switch s {
		case waiting:
			b.level.Waiting += by
		case running:
			b.level.Running += by
		}
	}
	r.stage = to
}

// Gauge records a pod's metrics.
func (b *Book) Gauge(at machine.Time, pod string, g Gauge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.name(pod)
	if was, ok := b.newest[n]; ok && was.same(g) {
		return
	}
	if b.newest[n].Name != g.Name && len(b.pods) < b.limits.names {
		b.pods = append(b.pods, [2]string{g.Name, pod})
	}
	x := gauge{at, g, n}
	b.newest[n] = x
	b.gauges = append(b.gauges, x)
	if len(b.gauges) > b.limits.gauges {
		b.gauges = slices.Delete(b.gauges, 0, b.limits.gauges/4)
		b.gone += b.limits.gauges / 4
	}
	b.version++
	mean, most := 0.0, 0.0
	for _, x := range b.newest {
		mean += x.KV / float64(len(b.newest))
		most = max(most, x.KV)
	}
	b.series().KV(at, mean, most)
}

// Steps returns the lines that the record has of a request, as a JSON list, and whether some are missing. The request
// may be named by its id or as the report names it.
func (b *Book) Steps(request string) (steps []byte, missing, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, known := b.index[request]
	if !known {
		n = slices.IndexFunc(b.rows, func(r row) bool { return record.Named(request, r.id) })
		if n < 0 {
			return nil, false, false
		}
		n += b.first
	}
	if n < b.first {
		return nil, true, false
	}
	r := &b.rows[n-b.first]
	return slices.Concat([]byte("["), r.steps, []byte("]")), r.dropped, true
}

// momentNames are the page's names for the columns of moments.
var momentNames = [momentCount]string{sent: "SENT", atPicker: "AT_PICKER", picked: "PICKED", passed: "PASSED",
	atSidecar: "AT_SIDECAR", legSent: "LEG_SENT", legEnded: "LEG_ENDED", atServer: "AT_SERVER", started: "STARTED",
	firstSent: "FIRST_SENT", part2Sent: "PART2", firstGot: "FIRST_GOT", lastSent: "LAST_SENT", over: "OVER"}

// columns are the columns of a row after its moments, with the page's names for them.
var columns = [...]struct {
	name string
	of   func(r *row) int
}{
	{"TTFT", func(r *row) int { return micros(r.ttft) }},
	{"TOTAL", func(r *row) int { return micros(r.total) }},
	{"ENDPOINT", func(r *row) int { return int(r.endpoint) }},
	{"PREFILLER", func(r *row) int { return int(r.prefiller) }},
	{"MODEL", func(r *row) int { return int(r.model) }},
	{"CLASS", func(r *row) int { return int(r.class) }},
	{"OUTCOME", func(r *row) int { return int(r.outcome) }},
	{"PROMPT", func(r *row) int { return int(r.prompt) }},
	{"CACHED", func(r *row) int { return int(r.cached) }},
	{"TOKENS", func(r *row) int { return int(r.tokens) }},
	{"STATUS", func(r *row) int { return int(r.status) }},
	{"ATTEMPTS", func(r *row) int { return int(r.attempts) }},
	{"FLAGS", func(r *row) (flags int) {
		if r.held {
			flags |= flagHeld
		}
		if r.byHand {
			flags |= flagByHand
		}
		return flags
	}},
	{"FETCHED", func(r *row) int { return r.fetched }},
	{"POOL", func(r *row) int { return int(r.pool) }},
	{"PRIORITY", func(r *row) int { return int(r.priority) }},
}

// Bits of the column FLAGS.
const flagHeld, flagByHand = 1, 2

// micros returns a time in microseconds, or -1 if it has not come.
func micros(t machine.Time) int {
	if t == none {
		return -1
	}
	return int(max(t, 0) / machine.Microsecond)
}

// appendRow appends a row as a JSON list, which a page parses fastest: its number, id, the moments (the first in
// microseconds since the start of the run, the others since the first; -1 means not yet), and the columns.
func appendRow(out []byte, n int, r *row) []byte {
	out = append(out, '[')
	out = strconv.AppendInt(out, int64(n), 10)
	out = recording.AppendString(append(out, ','), r.id)
	add := func(v int) { out = strconv.AppendInt(append(out, ','), int64(v), 10) }
	add(micros(r.at[sent]))
	for _, t := range r.at[sent+1:] {
		if t != none {
			t = max(0, t-r.at[sent])
		}
		add(micros(t))
	}
	for i := range columns {
		add(columns[i].of(r))
	}
	return append(out, ']')
}
