package trace

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Around has what a trace shows besides requests: the load of pods over time, and events such as incidents.
type Around struct {
	samples  []sample
	last     map[string]sample
	moments  []record.Event
	cut      int
	earliest []string // endpoints in the order of their first samples
}

// sample is the state of an endpoint from a time on, as a picker knows it.
type sample struct {
	at               machine.Time
	endpoint         string
	waiting, running int64
	kv               float64 // share of the KV cache in use
}

// Limits of Around.
const (
	maxSamples = 1 << 20
	maxMoments = 1 << 16
)

// Sample adds the state of an endpoint: requests that wait and run, and the share of the KV cache in use. It drops a
// state that has not changed.
func (a *Around) Sample(at machine.Time, endpoint string, waiting, running int64, kv float64) {
	s := sample{0, endpoint, waiting, running, kv}
	old, known := a.last[endpoint]
	if known && s == old {
		return
	}
	if a.last == nil {
		a.last = map[string]sample{}
	}
	if !known {
		a.earliest = append(a.earliest, endpoint)
	}
	if a.last[endpoint] = s; len(a.samples) >= maxSamples {
		a.cut++
		return
	}
	s.at = at
	a.samples = append(a.samples, s)
}

// Event adds an event that is not a request's: incidents, servers that come and go, failed scrapes. It ignores others.
func (a *Around) Event(e record.Event) {
	switch e.Step {
	case record.IncidentBegan, record.IncidentEnded, record.ServerStarted, record.ServerReady, record.ServerLeaving,
		record.ServerGone, record.Scaled, record.ScrapeFailed, record.Acted:
	default:
		return
	}
	if e.Request != "" {
		return
	}
	if len(a.moments) >= maxMoments {
		a.cut++
		return
	}
	e.Details = slices.Clone(e.Details) // the caller may reuse them
	a.moments = append(a.moments, e)
}

// Until drops events after a time.
func (a *Around) Until(end machine.Time) {
	a.moments = slices.DeleteFunc(a.moments, func(e record.Event) bool { return e.Time > end })
}

// Cut returns how many states and events were dropped because there were too many.
func (a *Around) Cut() int { return a.cut }

// name returns the name of an event in a trace: the step, and the incident if there is one.
func name(e *record.Event) string {
	if what := text(e.Details.Get("what")); what != "" {
		return string(e.Step) + " " + what
	}
	return string(e.Step)
}

// about returns an event's details and endpoint as attributes.
func about(e *record.Event) []Attribute {
	out := simple(e.Details)
	if e.Endpoint != "" {
		out = append(out, record.D("endpoint", e.Endpoint))
	}
	return out
}

// home returns the index of the part that an endpoint's counters belong to. An endpoint without spans gets an index
// from len(parts) on.
func home(parts []Part, endpoints []string) map[string]int {
	out := map[string]int{}
	next := len(parts)
	for _, e := range endpoints {
		i := slices.IndexFunc(parts, func(p Part) bool { return p.Instance == e })
		if i < 0 {
			i, next = next, next+1
		}
		out[e] = i
	}
	return out
}
