package chaos

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Watch is a record.Recorder that holds the events of a run against each other: at every part, each request that comes
// ends once, and the client gets as many tokens as its model server made. It may be used by several goroutines.
type Watch struct {
	mu       sync.Mutex
	pools    map[string]int // by endpoint
	count    int            // of pools
	requests map[string]*life
	broken   string
	over     machine.Time // of the latest end
	ended    int          // requests
	order    []*life      // requests by the time of their end
}

// life holds what the parts have reported of a request.
type life struct {
	id         string
	pool       int // -1: unknown
	sent, over machine.Time
	starts     int
	outcomes   int
	completed  bool
	tokens     int // at the client; -1: unknown
	made       int // at the last model server that ended it well
	parts      [hops]struct{ came, ended int }
}

const (
	atEPP = iota
	atSidecar
	atServer
	atEnvoy
	hops
)

var hopNames = [hops]string{"the endpoint picker", "the sidecars", "the model servers", "Envoy"}

// NewWatch returns a Watch of a run that has not begun.
func NewWatch() *Watch { return &Watch{pools: map[string]int{}, requests: map[string]*life{}} }

// Pool adds the next pool, by the addresses of its servers.
func (w *Watch) Pool(endpoints []string) {
	for _, e := range endpoints {
		w.pools[e] = w.count
	}
	w.count++
}

// Record implements record.Recorder.
func (w *Watch) Record(e record.Event) {
	if e.Request == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.requests[e.Request]
	if r == nil {
		r = &life{id: e.Request, pool: -1, tokens: -1}
		w.requests[e.Request] = r
	}
	if p, known := w.pools[e.Endpoint]; known {
		r.pool = p
	}
	switch e.Hop {
	case record.Client:
		w.client(r, &e)
	case record.EPP:
		r.at(atEPP, &e, record.RequestReceived, record.ResponseEndSeen, record.Answered, record.StreamFailed)
	case record.Sidecar:
		r.at(atSidecar, &e, record.RequestReceived, record.ResponseEndSeen, record.Answered, record.Aborted)
	case record.Server:
		r.at(atServer, &e, record.PrefillStarted, record.LastTokenSent, record.Aborted)
		if e.Step == record.LastTokenSent {
			r.made, _ = e.Details.Get("tokens").(int)
		}
	case record.Envoy:
		r.parts[atEnvoy].came++
		r.parts[atEnvoy].ended++
	}
}

// at counts the beginning and the ends of a request at a part.
func (r *life) at(part int, e *record.Event, begins record.Step, ends ...record.Step) {
	if p := &r.parts[part]; e.Step == begins {
		p.came++
	} else if slices.Contains(ends, e.Step) {
		p.ended++
	}
}

func (w *Watch) client(r *life, e *record.Event) {
	switch e.Step {
	case record.RequestSent:
		r.sent = e.Time
		r.starts++
	case record.Finished:
		r.over, w.over = e.Time, max(w.over, e.Time)
		r.outcomes++
		w.ended++
		w.order = append(w.order, r)
		outcome, _ := e.Details.Get("outcome").(string)
		r.completed = outcome == string(record.Completed)
		if n, known := e.Details.Get("tokens").(int); known {
			r.tokens = n
		}
		if r.outcomes > 1 {
			w.fail("%s has %d outcomes; expected one", r.id, r.outcomes)
		}
	}
}

func (w *Watch) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// Broken returns what does not hold at the end of a run; empty if all does.
func (w *Watch) Broken() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(w.requests)) {
		r := w.requests[id]
		if r.starts != 1 || r.outcomes != 1 {
			w.fail("%s was sent %d times and has %d outcomes; expected one of each", r.id, r.starts, r.outcomes)
		}
		for i, p := range r.parts {
			// Model servers also reject requests that they have not begun, and a request may break before it is whole.
			if p.came > p.ended || p.came < p.ended && i != atServer && p.ended > 1 {
				w.fail("%s came to %s %d times and ended there %d times", r.id, hopNames[i], p.came, p.ended)
			}
		}
		// A sidecar may add tokens of its own.
		if r.completed && r.tokens >= 0 && r.parts[atServer].came > 0 && (r.made > r.tokens ||
			r.made < r.tokens && r.parts[atSidecar].came == 0) {
			w.fail("%s completed with %d tokens at the client, and its model server made %d", r.id, r.tokens, r.made)
		}
	}
	return w.broken
}

// recovered returns how long after the end of a fault the first request that was sent after that end completed; false
// if none did. sent reports whether any was sent.
func (w *Watch) recovered(f *Fault) (after machine.Time, ok, sent bool) {
	end := machine.FromDuration(f.Incident.At + f.Incident.For)
	for _, r := range w.order {
		if r.sent < end {
			continue
		}
		if sent = true; r.completed && (r.pool == f.Pool || w.count == 1) {
			return r.over - end, true, true
		}
	}
	return 0, false, sent
}

// counts returns how many requests were sent, and how many completed.
func (w *Watch) counts() (sent, completed int) {
	for _, r := range w.requests {
		if r.completed {
			completed++
		}
	}
	return len(w.requests), completed
}
