package plan

import (
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Incident is something that happens to a part of a pool at a time.
type Incident struct {
	// At is when, from the first request on, and For until it is over; 0 is never.
	At, For time.Duration
	Kind    IncidentKind
	// Server, Replica and Deployment are the indexes in the pool of what it happens to.
	Server, Replica, Deployment int
	// Count is how many servers join.
	Count int
	// Delay is how long a page of metrics takes; Grace is how long a server has to finish, 0 for its usual time.
	Delay, Grace time.Duration
	// Factor is how many times as long steps take.
	Factor float64
	// Control and Undo describe what the server's engine receives at the beginning and at the end; nil is nothing.
	Control, Undo *engine.Control
}

// IncidentKind describes what happens.
type IncidentKind string

// The kinds of incidents.
const (
	LoseRank        IncidentKind = "lose-rank"
	Crash           IncidentKind = "crash"
	RestartSidecar  IncidentKind = "restart-sidecar"
	LoseIndex       IncidentKind = "lose-index"
	RestartEPP      IncidentKind = "restart-epp"
	RestartFrontend IncidentKind = "restart-frontend"
	SlowDown        IncidentKind = "slow-down"
	SlowMetrics     IncidentKind = "slow-metrics"
	LoseTransfers   IncidentKind = "lose-transfers"
	AddServer       IncidentKind = "add-server"
	DrainServer     IncidentKind = "drain-server"
)

// OfServer reports whether it happens to one server, or to its sidecar.
func (k IncidentKind) OfServer() bool {
	return k != LoseIndex && k != RestartEPP && k != RestartFrontend && k != AddServer
}

// Victim is the pool that incidents happen to, in its executor. Indexes are the plan's.
type Victim interface {
	// Control changes a server's engine. Envoy finds out by itself.
	Control(server int, c engine.Control) error
	// SlowMetrics has pages of a server's metrics take so much longer; 0 is as before.
	SlowMetrics(server int, delay time.Duration) error
	// RestartSidecar breaks off what a sidecar serves.
	RestartSidecar(server int) error
	// LoseTransfers loses the KV caches on their way to or from a server, and with stay those that begin until
	// MendTransfers.
	LoseTransfers(server int, stay bool)
	MendTransfers(server int)
	// AddServers has a Deployment want more servers. Drain has a server leave.
	AddServers(deployment, n int)
	Drain(deployment, pod int, grace machine.Time)
	// LoseIndexes empties the indexes of KV blocks of all pickers.
	LoseIndexes()
	// StopPicker and StopFrontend end the process as a crash would; Start begins it without any knowledge.
	StopPicker(replica int)
	StartPicker(replica int) error
	StopFrontend() error
	StartFrontend() error
}

// Begin plays the incident on the pool.
func (x *Incident) Begin(p *Pool, v Victim) error {
	if x.Control != nil {
		return v.Control(x.Server, *x.Control)
	}
	switch x.Kind {
	case SlowMetrics:
		return v.SlowMetrics(x.Server, x.Delay)
	case LoseTransfers:
		v.LoseTransfers(x.Server, x.For > 0)
	case RestartSidecar:
		return v.RestartSidecar(x.Server)
	case AddServer:
		v.AddServers(x.Deployment, x.Count)
	case DrainServer:
		v.Drain(x.Deployment, x.Server-p.Deployments[x.Deployment].First, at(x.Grace))
	case LoseIndex:
		v.LoseIndexes()
	case RestartEPP:
		if v.StopPicker(x.Replica); x.For == 0 {
			return v.StartPicker(x.Replica)
		}
	case RestartFrontend:
		if err := v.StopFrontend(); err != nil || x.For > 0 {
			return err
		}
		return v.StartFrontend()
	}
	return nil
}

// End undoes what Begin did, once For is over.
func (x *Incident) End(v Victim) error {
	if x.Undo != nil {
		return v.Control(x.Server, *x.Undo)
	}
	switch x.Kind {
	case SlowMetrics:
		return v.SlowMetrics(x.Server, 0)
	case LoseTransfers:
		v.MendTransfers(x.Server)
	case RestartEPP:
		return v.StartPicker(x.Replica)
	case RestartFrontend:
		return v.StartFrontend()
	}
	return nil
}

// Event describes what the record says when it begins or ends (step) at a server with this endpoint.
func (x *Incident) Event(now machine.Time, step record.Step, endpoint string) record.Event {
	e := record.Event{Time: now, Hop: record.Server, Step: step, Endpoint: endpoint,
		Details: record.Details{record.D("what", string(x.Kind))}}
	if !x.Kind.OfServer() {
		e.Endpoint = ""
	}
	switch x.Kind {
	case RestartSidecar:
		e.Hop = record.Sidecar
	case LoseIndex, RestartFrontend:
		e.Hop = record.EPP
	case RestartEPP:
		e.Hop = record.EPP
		e.Details = append(e.Details, record.D("replica", x.Replica))
	case AddServer:
		e.Details = append(e.Details, record.D("count", x.Count))
	case LoseRank:
		e.Details = append(e.Details, record.D("rank", x.Control.Rank))
	case SlowDown:
		e.Details = append(e.Details, record.D("factor", x.Factor))
	case SlowMetrics:
		e.Details = append(e.Details, record.D("delay", x.Delay.String()))
	}
	if x.For > 0 && step == record.IncidentBegan {
		e.Details = append(e.Details, record.D("for", x.For.String()))
	}
	return e
}

func at(d time.Duration) machine.Time { return machine.FromDuration(d) }
