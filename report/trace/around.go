package trace

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Around is what of a run is no request's: how full its pods were, and what happened to
// them.
type Around struct {
	samples  []sample
	last     map[string]sample
	moments  []record.Event
	cut      int
	earliest []string // endpoints in the order in which they were first told of
}

// sample is what a picker knew of an endpoint from a time on.
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

// Sample takes what a picker knows of an endpoint: requests that wait and run, and the
// share of the KV cache that is in use. What is the same as before is not kept.
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

// Event takes an event that is no request's: incidents, servers that come and go, scrapes
// that fail. Others are left out.
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
	e.Details = slices.Clone(e.Details) // the caller may use them again
	a.moments = append(a.moments, e)
}

// Until leaves out what happened later.
func (a *Around) Until(end machine.Time) {
	a.moments = slices.DeleteFunc(a.moments, func(e record.Event) bool { return e.Time > end })
}

// Cut is how many figures and moments were left out since there are too many.
func (a *Around) Cut() int { return a.cut }

// name is what a moment is called: what happened, where one says that.
func name(e *record.Event) string {
	if what := text(e.Details.Get("what")); what != "" {
		return string(e.Step) + " " + what
	}
	return string(e.Step)
}

// about are a moment's details as attributes, with where it happened.
func about(e *record.Event) []Attribute {
	out := simple(e.Details)
	if e.Endpoint != "" {
		out = append(out, record.D("endpoint", e.Endpoint))
	}
	return out
}

// home is which of parts an endpoint's figures are shown with: its own, else len(parts)
// and more for those of which no span tells.
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
