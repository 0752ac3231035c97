package trace

import (
	"maps"
	"slices"
	"sync"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Limits of a Collector.
const (
	// MaxOpen bounds the requests that it follows at once.
	MaxOpen = 65_536
	// MaxEvents bounds the events that it keeps of a request.
	MaxEvents = 4_096
	// linger is how long it waits after a request's end for events of other hops. Envoy writes its log up to a tenth of
	// a second later.
	linger = 500 * machine.Millisecond
)

// Collector collects the events of each request and emits them when the request is over. It is a record.Recorder, safe
// for concurrent use.
type Collector struct {
	emit func([]record.Event)

	mu      sync.Mutex // guards all below
	open    map[string][]record.Event
	over    []over
	dropped int
}

type over struct {
	at      machine.Time
	request string
}

// NewCollector returns a Collector. It calls emit with all events of a request, in the goroutine that records or
// closes, one call at a time. emit must not record.
func NewCollector(emit func([]record.Event)) *Collector {
	return &Collector{emit: emit, open: map[string][]record.Event{}}
}

// Record adds one event.
func (c *Collector) Record(e record.Event) {
	if e.Request == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(e.Time)
	events, known := c.open[e.Request]
	switch {
	case !known && (e.Hop == record.Envoy || len(c.open) >= MaxOpen):
		if e.Hop != record.Envoy { // else Envoy's log, of a request that is over
			c.dropped++
		}
		return
	case len(events) >= MaxEvents && e.Step != record.Finished:
		return
	}
	e.Details = slices.Clone(e.Details) // the caller may use them again
	c.open[e.Request] = append(events, e)
	if ends(events, e) {
		c.over = append(c.over, over{e.Time, e.Request})
	}
}

// ends reports whether a request is over with e: its client finished or, without events of the client, the first of the
// other hops.
func ends(before []record.Event, e record.Event) bool {
	if !slices.Contains(lasts[e.Hop], e.Step) {
		return false
	}
	for _, x := range before {
		if x.Hop != e.Hop && x.Hop != record.Envoy && nearer(x.Hop, e.Hop) {
			return false
		}
	}
	return true
}

// lasts are the last steps of a request at each hop.
var lasts = map[record.Hop][]record.Step{
	record.Client:  {record.Finished},
	record.EPP:     {record.ResponseEndSeen, record.Answered, record.StreamFailed},
	record.Sidecar: {record.ResponseEndSeen, record.Answered, record.Aborted},
	record.Server:  {record.LastTokenSent, record.Rejected, record.Violation, record.Aborted},
}

// nearer reports whether a request reaches hop a before b.
func nearer(a, b record.Hop) bool {
	order := []record.Hop{record.Client, record.EPP, record.Sidecar, record.Server}
	return slices.Index(order, a) < slices.Index(order, b)
}

// Settle emits the requests that are over since linger or longer.
func (c *Collector) Settle(now machine.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(now)
}

func (c *Collector) settle(now machine.Time) {
	n := 0
	for ; n < len(c.over) && c.over[n].at+linger <= now; n++ {
		c.release(c.over[n].request)
	}
	c.over = c.over[n:]
}

func (c *Collector) release(request string) {
	if events, ok := c.open[request]; ok {
		delete(c.open, request)
		c.emit(events)
	}
}

// Close emits all requests, including unfinished ones, and returns how many were dropped because too many were open at
// once.
func (c *Collector) Close() (dropped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, request := range slices.Sorted(maps.Keys(c.open)) {
		c.release(request)
	}
	return c.dropped
}
