package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/plan"
)

// Incident is an event that happens to a part of the pool at a time, independent of the requests under way.
type Incident struct {
	// When it happens, counted from the first request.
	At time.Duration `json:"at" min:"0s" max:"240h"`
	// What happens: lose-rank (an accelerator of a tensor-parallel group fails, and the group with it), crash (the
	// engine dies), restart-sidecar (the sidecar's requests break off, and it loses its sessions), lose-index (the
	// picker's index of KV blocks becomes empty), slow-metrics (a server's metrics page takes delay, so that the picker
	// knows its state later), lose-transfers (KV caches on their way to or from a server are lost; with for, also those
	// that begin during that time), slow-down (the steps of a server that batches take longer, as on a throttled
	// accelerator), restart-epp (a replica of the endpoint picker dies and starts again: its requests break off, and it
	// loses its state), restart-frontend (the Dynamo frontend beside the picker dies and starts again with an empty
	// router), add-server (servers join, and serve once they have started; see lifecycle), drain-server (a server
	// leaves: it finishes its requests, and gets no new ones), kill-server (a server's process is killed), pause-server
	// and pause-epp (a process stops, and continues), cut-server, cut-epp and cut-clients (connections to a server,
	// from Envoy to a replica of the picker, or from clients to Envoy break, and new ones are refused during for),
	// delay-server, delay-epp and delay-clients (each message on those connections takes delay longer), false-metrics
	// (a server's metrics page shows an idle server), lose-events (the KV events that a server publishes are lost),
	// jump-clock (the clock of all parts jumps forward by delay; only in virtual time).
	What IncidentKind `json:"what"`
	// The number of the server or of its sidecar, from 0; servers that only prefill come last.
	Server int `json:"server" min:"0" max:"16384"`
	// The rank that fails; the leader is 0.
	Rank int `json:"rank" min:"0" max:"63"`
	// The replica of the endpoint picker that restarts, from 0.
	Replica int `json:"replica" min:"0" max:"63"`
	// The factor by which slow-down makes steps longer; 2 is half as fast.
	Factor float64 `json:"factor" min:"0.01" max:"100"`
	// How long a page of metrics takes with slow-metrics, and how much longer a message takes with delay-server,
	// delay-epp and delay-clients; a page that takes longer than the picker waits (1s) never arrives. How far
	// jump-clock jumps.
	Delay time.Duration `json:"delay" min:"1ms" max:"1h"`
	// How many servers join with add-server.
	Count int `json:"count" min:"1" max:"1024"`
	// The group of servers that they join, where the pool has groups.
	Group string `json:"group"`
	// How long a server has to finish its requests with drain-server. Left out: the pool's lifecycle.gracePeriod.
	Grace time.Duration `json:"grace" min:"1ms" max:"24h"`
	// How long the incident lasts: until the engine is back, with an empty cache (left out: it stays dead), until the
	// endpoint picker or the frontend is back (left out: it restarts at once), or until the earlier state returns (left
	// out: never). A pause has an end.
	For time.Duration `json:"for" min:"0s" max:"240h"`
}

// IncidentKind says what happens in an incident.
type IncidentKind plan.IncidentKind

// The kinds of incidents that the scenario treats differently.
const (
	LoseRank        = IncidentKind(plan.LoseRank)
	Crash           = IncidentKind(plan.Crash)
	RestartSidecar  = IncidentKind(plan.RestartSidecar)
	LoseIndex       = IncidentKind(plan.LoseIndex)
	RestartEPP      = IncidentKind(plan.RestartEPP)
	RestartFrontend = IncidentKind(plan.RestartFrontend)
	SlowDown        = IncidentKind(plan.SlowDown)
	SlowMetrics     = IncidentKind(plan.SlowMetrics)
	LoseTransfers   = IncidentKind(plan.LoseTransfers)
	AddServer       = IncidentKind(plan.AddServer)
	DrainServer     = IncidentKind(plan.DrainServer)
	CutEPP          = IncidentKind(plan.CutEPP)
	LoseEvents      = IncidentKind(plan.LoseEvents)
	JumpClock       = IncidentKind(plan.JumpClock)
)

// Values returns all kinds, for the schema and for errors.
func (IncidentKind) Values() (out []string) {
	for _, k := range plan.IncidentKinds {
		out = append(out, string(k))
	}
	return out
}

// OfServer reports whether the incident happens to one server, or to its sidecar.
func (k IncidentKind) OfServer() bool { return plan.IncidentKind(k).OfServer() }

// CheckLive returns the mistakes of a scenario that is played in wall time.
func (s *Scenario) CheckLive() error {
	var out Problems
	for i := range s.Pools {
		for j := range s.Pools[i].Incidents {
			if s.Pools[i].Incidents[j].What == JumpClock {
				out = append(out, s.problem(fmt.Sprintf("pools[%d].incidents[%d].what", i, j), found(string(JumpClock)),
					"another incident, or windtunnel sim: clocks jump in virtual time alone"))
			}
		}
	}
	return out.Err()
}

// CheckIncident returns an error if an incident cannot happen in a pool now, whatever its time.
func (s *Scenario) CheckIncident(p *Pool, x *Incident) error {
	if x.Server < 0 || x.Server >= max(1, p.Servers()) || x.Replica < 0 || x.Rank < 0 ||
		!(x.Factor >= 0 && x.Factor <= 100) || x.For < 0 || x.For > 240*time.Hour || x.Delay < 0 ||
		x.Delay > time.Hour {
		return fmt.Errorf("found server %d, factor %g, delay %s, for %s; expected server 0 to %d, a factor up to "+
			"100, a delay up to 1h and at most 240h", x.Server, x.Factor, x.Delay, x.For, max(1, p.Servers())-1)
	}
	if !slices.Contains(x.What.Values(), string(x.What)) {
		return fmt.Errorf("found %q; expected one of %s", x.What, strings.Join(x.What.Values(), ", "))
	}
	one, c := *p, checker{Scenario: s}
	one.Incidents = []Incident{*x}
	if c.checkIncidents(&one, "incident"); len(c.problems) > 0 {
		return fmt.Errorf("%s; expected %s", c.problems[0].Found, c.problems[0].Expected)
	}
	return nil
}

// checkIncidents checks that the incidents of a pool can happen.
func (s *checker) checkIncidents(p *Pool, path string) {
	for i := range p.Incidents {
		x, at := &p.Incidents[i], fmt.Sprintf("%s[%d]", path, i)
		add := func(field, found, expected string) { s.bad(at+field, found, expected) }
		kind := plan.IncidentKind(x.What)
		switch ranks := max(1, p.Server(x.Server).TensorParallelSize); {
		case len(p.Endpoints) > 0:
			add("", "given beside endpoints",
				"simulated model servers (replicas): incidents do not happen to external ones")
		case x.What == "":
			add(".what", "missing", "one of "+strings.Join(x.What.Values(), ", "))
		case (x.What == LoseIndex || x.What == LoseEvents) && !p.ModelServer.KVEvents.Published():
			add(".what", string(x.What)+" where the model servers publish no KV events",
				"modelServer.kvEvents with a format beside it")
		case x.What == RestartFrontend && !p.Dynamo.Given():
			add(".what", "restart-frontend where there is no frontend",
				"dynamo.frontend: sidecar, external or graph beside it")
		case x.What == RestartSidecar && p.Sidecar == NoSidecar:
			add(".what", "restart-sidecar without sidecars", "sidecar: routing beside it")
		case x.What == RestartSidecar && x.Server >= p.Decoders():
			add(".server", fmt.Sprintf("found %d", x.Server),
				fmt.Sprintf("0 to %d, a decode server of the pool", p.Decoders()-1))
		case kind.Takes("replica") && !p.Picked():
			add(".what", string(x.What)+" with epp.replicas 0", "another what: there is no picker")
		case kind.Takes("replica") && x.Replica >= p.EPP.Replicas:
			add(".replica", fmt.Sprintf("found %d", x.Replica),
				fmt.Sprintf("0 to %d, a replica of the pool's endpoint picker", p.EPP.Replicas-1))
		case x.What.OfServer() && x.Server >= p.Servers():
			add(".server", fmt.Sprintf("found %d", x.Server),
				fmt.Sprintf("0 to %d, a server of the pool", p.Servers()-1))
		case x.What == AddServer && len(p.Groups) > 0 &&
			!slices.ContainsFunc(p.Groups, func(g ServerGroup) bool { return g.Name == x.Group }):
			add(".group", found(x.Group), "one of the pool's groups")
		case x.What == AddServer && len(p.Groups) == 0 && x.Group != "":
			add(".group", found(x.Group), "nothing: the pool has no groups")
		case x.What == AddServer && p.scales(x.Group):
			add(".what", "add-server with autoscaling",
				"drain-server, or nothing: the autoscaler decides the number of servers")
		case x.What == SlowDown && x.Factor == 0:
			add(".factor", "missing", "how many times as long steps take, such as factor: 2")
		case x.What == SlowDown && p.ModelServer.Batching == Independent:
			add(".what", "slow-down with batching independent, whose servers take no steps",
				"batching: continuous, or another what")
		case kind.Takes("delay") && x.Delay == 0:
			add(".delay", "missing", "a duration, such as delay: 5s")
		case kind.Lasts() && x.For == 0:
			add(".for", "missing", "how long the process stops, such as for: 5s")
		case x.What == LoseTransfers && p.Sidecar == NoSidecar:
			add(".what", "lose-transfers where no KV cache travels", "sidecar: routing and disaggregation beside it")
		case x.What == LoseRank && ranks == 1:
			add(".what", "lose-rank where a server has one accelerator",
				"modelServer.tensorParallelSize of 2 or more beside it, or what: crash")
		case x.What == LoseRank && x.Rank >= ranks:
			add(".rank", fmt.Sprintf("found %d", x.Rank), fmt.Sprintf("0 to %d, a rank of the group", ranks-1))
		}
		for _, field := range []string{"rank", "replica", "factor", "delay", "count", "group", "grace", "server",
			"for"} {
			if x.What != "" && s.written(at+"."+field) && !kind.Takes(field) {
				add("."+field, "given with what: "+string(x.What),
					"nothing: only another what uses it")
			}
		}
	}
}
