package plan

import (
	"slices"
	"strings"
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
	// Delay is how long a page of metrics or a message takes, or how far the clock jumps. Grace is how long a server
	// has to finish, 0 for its usual time.
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
	KillServer      IncidentKind = "kill-server"
	PauseServer     IncidentKind = "pause-server"
	CutServer       IncidentKind = "cut-server"
	DelayServer     IncidentKind = "delay-server"
	PauseEPP        IncidentKind = "pause-epp"
	CutEPP          IncidentKind = "cut-epp"
	DelayEPP        IncidentKind = "delay-epp"
	CutClients      IncidentKind = "cut-clients"
	DelayClients    IncidentKind = "delay-clients"
	FalseMetrics    IncidentKind = "false-metrics"
	LoseEvents      IncidentKind = "lose-events"
	JumpClock       IncidentKind = "jump-clock"
)

// IncidentKinds lists all kinds.
var IncidentKinds = []IncidentKind{LoseRank, Crash, RestartSidecar, LoseIndex, RestartEPP, RestartFrontend, SlowDown,
	SlowMetrics, LoseTransfers, AddServer, DrainServer, KillServer, PauseServer, CutServer, DelayServer, PauseEPP,
	CutEPP, DelayEPP, CutClients, DelayClients, FalseMetrics, LoseEvents, JumpClock}

// OfServer reports whether it happens to one server, or to its sidecar.
func (k IncidentKind) OfServer() bool {
	switch k {
	case LoseIndex, RestartFrontend, AddServer, CutClients, DelayClients, JumpClock:
		return false
	}
	return !k.OfReplica()
}

// BreaksServers, BreaksPickers and BreaksClients report whether it breaks or delays connections to servers, to pickers,
// or of clients.
func (k IncidentKind) BreaksServers() bool { return k == CutServer || k == DelayServer }
func (k IncidentKind) BreaksPickers() bool { return k == CutEPP || k == DelayEPP }
func (k IncidentKind) BreaksClients() bool { return k == CutClients || k == DelayClients }

// StopsServer reports whether a server may fail its readiness probe.
func (k IncidentKind) StopsServer() bool {
	return k == LoseRank || k == Crash || k == KillServer || k == PauseServer || k.BreaksServers()
}

// OfReplica reports whether it happens to one replica of the endpoint picker.
func (k IncidentKind) OfReplica() bool {
	return k == RestartEPP || k == PauseEPP || k == CutEPP || k == DelayEPP
}

// Lasts reports whether it cannot last for ever: requests would wait without an end.
func (k IncidentKind) Lasts() bool { return k == PauseServer || k == PauseEPP }

// Takes reports whether incidents of this kind have a field.
func (k IncidentKind) Takes(field string) bool {
	switch field {
	case "server":
		return k.OfServer()
	case "rank":
		return k == LoseRank
	case "replica":
		return k.OfReplica()
	case "factor":
		return k == SlowDown
	case "delay":
		return k == SlowMetrics || k == JumpClock || strings.HasPrefix(string(k), "delay-")
	case "count", "group":
		return k == AddServer
	case "grace":
		return k == DrainServer
	case "for":
		return !slices.Contains([]IncidentKind{RestartSidecar, LoseIndex, AddServer, DrainServer, JumpClock,
			CutClients}, k)
	}
	return true
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
	// KillServer ends a server's process; StartServer begins another one.
	KillServer(server int) error
	StartServer(server int) error
	// PauseServer and PausePicker stop a process, and let it continue.
	PauseServer(server int, stopped bool)
	PausePicker(replica int, stopped bool)
	// ServerConnections are the connections for requests and metrics to a server, PickerConnections those of Envoy to
	// a picker, and ClientConnections those of clients to Envoy.
	ServerConnections(server int) Connections
	PickerConnections(replica int) Connections
	ClientConnections() Connections
	// FalsifyMetrics makes a server's metrics page show an idle server.
	FalsifyMetrics(server int, yes bool)
	// LoseEvents loses the KV events that a server publishes.
	LoseEvents(server int, yes bool)
	// JumpClock sets the clock of all parts forward.
	JumpClock(by time.Duration) error
}

// Connections are those of one part to another.
type Connections interface {
	// Cut breaks all connections, and with stay refuses new ones until Mend.
	Cut(stay bool) error
	Mend() error
	// Delay makes each message take so much longer; 0 is as before.
	Delay(by time.Duration) error
}

// connections returns those that the incident is about.
func (x *Incident) connections(v Victim) Connections {
	switch {
	case x.Kind.BreaksServers():
		return v.ServerConnections(x.Server)
	case x.Kind.BreaksPickers():
		return v.PickerConnections(x.Replica)
	}
	return v.ClientConnections()
}

// toggle begins or ends an incident that is under way or not.
func (x *Incident) toggle(v Victim, on bool) {
	switch x.Kind {
	case PauseServer:
		v.PauseServer(x.Server, on)
	case PauseEPP:
		v.PausePicker(x.Replica, on)
	case FalseMetrics:
		v.FalsifyMetrics(x.Server, on)
	case LoseEvents:
		v.LoseEvents(x.Server, on)
	}
}

// Apply plays the incident on the pool.
func (x *Incident) Apply(p *Pool, v Victim) error {
	if x.Control != nil {
		return v.Control(x.Server, *x.Control)
	}
	x.toggle(v, true)
	switch x.Kind {
	case CutServer, CutEPP, CutClients:
		return x.connections(v).Cut(x.For > 0)
	case DelayServer, DelayEPP, DelayClients:
		return x.connections(v).Delay(x.Delay)
	case KillServer:
		return v.KillServer(x.Server)
	case JumpClock:
		return v.JumpClock(x.Delay)
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

// Revert undoes what Apply did, once For is over.
func (x *Incident) Revert(v Victim) error {
	if x.Undo != nil {
		return v.Control(x.Server, *x.Undo)
	}
	x.toggle(v, false)
	switch x.Kind {
	case CutServer, CutEPP, CutClients:
		return x.connections(v).Mend()
	case DelayServer, DelayEPP, DelayClients:
		return x.connections(v).Delay(0)
	case KillServer:
		return v.StartServer(x.Server)
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
	if x.Kind.OfReplica() {
		e.Hop = record.EPP
		e.Details = append(e.Details, record.D("replica", x.Replica))
	}
	if x.Delay > 0 {
		e.Details = append(e.Details, record.D("delay", x.Delay.String()))
	}
	switch x.Kind {
	case RestartSidecar:
		e.Hop = record.Sidecar
	case LoseIndex, RestartFrontend:
		e.Hop = record.EPP
	case CutClients, DelayClients, JumpClock:
		e.Hop = record.Client
	case AddServer:
		e.Details = append(e.Details, record.D("count", x.Count))
	case LoseRank:
		e.Details = append(e.Details, record.D("rank", x.Control.Rank))
	case SlowDown:
		e.Details = append(e.Details, record.D("factor", x.Factor))
	}
	if x.For > 0 && step == record.IncidentBegan {
		e.Details = append(e.Details, record.D("for", x.For.String()))
	}
	return e
}

func at(d time.Duration) machine.Time { return machine.FromDuration(d) }
