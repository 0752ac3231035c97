package chaos

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/scenario"
)

// Fault is one fault of a pool. Either Incident or OfRequests is set.
type Fault struct {
	// Pool is the pool's index in the file.
	Pool int `json:"pool"`
	// Incident is something that happens at a time.
	Incident *scenario.Incident `json:"-"`
	// OfRequests is a fault that model servers inject into requests.
	OfRequests *scenario.ServerFault `json:"-"`
}

// String returns the fault as YAML on one line, as in a scenario.
func (f Fault) String() string {
	if f.Incident != nil {
		return incidentText(f.Incident)
	}
	return faultText(f.OfRequests)
}

// Kind returns the incident's what, or the name of the fault of requests.
func (f Fault) Kind() string {
	if f.Incident != nil {
		return string(f.Incident.What)
	}
	name, _, _ := strings.Cut(f.OfRequests.Fault, "=")
	return name
}

// mostFaults bounds the faults of a seed.
const mostFaults = 10

// kinds are all incidents, and all faults of requests with an = for those with a value.
var kinds = append(scenario.IncidentKind("").Values(), lifecycle.FaultForms()...)

// draw draws a list of faults. Each kind that the scenario can have is as probable.
func (b *Base) draw(d machine.Draw) (out []Fault) {
	for n := 1 + d.Intn(mostFaults); len(out) < n; {
		f := Fault{Pool: b.pools[d.Intn(len(b.pools))]}
		p := &b.Scenario.Pools[f.Pool]
		kind := kinds[d.Intn(len(kinds))]
		if slices.Contains(scenario.IncidentKind("").Values(), kind) {
			f.Incident = b.incident(&d, p, plan.IncidentKind(kind))
			if b.Scenario.CheckIncident(p, f.Incident) != nil {
				continue
			}
		} else {
			f.OfRequests = ofRequests(&d, p, kind)
		}
		out = append(out, f)
	}
	return out
}

// incident draws an incident, which may be impossible.
func (b *Base) incident(d *machine.Draw, p *scenario.Pool, kind plan.IncidentKind) *scenario.Incident {
	span := max(b.Span, time.Second)
	x := &scenario.Incident{What: scenario.IncidentKind(kind),
		At: time.Duration(d.Float64() * float64(span)).Round(time.Millisecond)}
	for _, f := range []struct {
		name string
		draw func()
	}{
		{"server", func() { x.Server = d.Intn(p.Servers()) }},
		{"rank", func() { x.Rank = d.Intn(max(1, p.Server(x.Server).TensorParallelSize)) }},
		{"replica", func() { x.Replica = d.Intn(max(1, p.EPP.Replicas)) }},
		{"factor", func() { x.Factor = math.Round(100*math.Pow(10, 2*d.Float64()-1)) / 100 }},
		{"delay", func() { x.Delay = upTo(d, 5*time.Second) }},
		{"count", func() {
			x.Count = 1 + d.Intn(2)
			if n := len(p.Groups); n > 0 {
				x.Group = p.Groups[d.Intn(n)].Name
			}
		}},
		{"grace", func() { x.Grace = upTo(d, 5*time.Second) }},
	} {
		if kind.Takes(f.name) {
			f.draw()
		}
	}
	if forever := d.Intn(10) == 0; kind.Takes("for") && !forever {
		x.For = upTo(d, span/2)
	}
	return x
}

// upTo draws a time from 1 ms to most, with short and long ones as probable.
func upTo(d *machine.Draw, most time.Duration) time.Duration {
	t := time.Duration(float64(time.Millisecond) * math.Pow(float64(most)/float64(time.Millisecond), d.Float64()))
	return max(t.Round(time.Millisecond), time.Millisecond)
}

// ofRequests draws a fault that is injected into requests, at one server or at all.
func ofRequests(d *machine.Draw, p *scenario.Pool, form string) *scenario.ServerFault {
	name, value, _ := strings.Cut(form, "=")
	switch value {
	case "N":
		name += fmt.Sprint("=", d.Intn(10))
	case "CODE":
		name += fmt.Sprint("=", []int{200, 204, 400, 404, 429, 500, 503}[d.Intn(7)])
	case "DURATION":
		name += fmt.Sprint("=", upTo(d, 2*time.Second))
	}
	f := &scenario.ServerFault{Fault: name, Rate: scenario.Share(1+d.Intn(40)) / 100}
	if d.Intn(2) == 0 {
		f.Servers = []int{d.Intn(p.Servers())}
	}
	return f
}
