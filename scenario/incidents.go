package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/plan"
)

// Incident is something that happens to a part of the pool at a time, whatever
// requests are under way.
type Incident struct {
	// When it happens, from the first request on.
	At time.Duration `json:"at" min:"0s" max:"240h"`
	// What happens: lose-rank (an accelerator of a tensor-parallel group fails, and the group with it), crash (the
	// engine dies), restart-sidecar (what the sidecar serves breaks off, and its sessions are forgotten), lose-index
	// (the picker's index of KV blocks is empty), slow-metrics (a server takes delay to say its metrics, so that the
	// picker knows less of it and later), lose-transfers (KV caches on their way to or from a server are lost; with
	// for, those too that begin meanwhile), slow-down (the steps of a server that batches take longer, as on an
	// accelerator that is throttled), restart-epp (a replica of the endpoint picker dies and begins anew: what it has
	// in hand breaks off, and all that it knew is lost), restart-frontend (the Dynamo frontend beside the picker dies
	// and begins anew, and its router knows nothing), add-server (servers join, and serve once they have started; see
	// lifecycle), drain-server (a server leaves: it finishes what it has, and gets nothing new).
	What IncidentKind `json:"what"`
	// The number of the server or of its sidecar, the first being 0; servers that only prefill come last.
	Server int `json:"server" min:"0" max:"16384"`
	// Which rank is lost, the leader being 0.
	Rank int `json:"rank" min:"0" max:"63"`
	// Which replica of the endpoint picker restarts, the first being 0.
	Replica int `json:"replica" min:"0" max:"63"`
	// How many times as long steps take with slow-down; 2 is half as fast.
	Factor float64 `json:"factor" min:"0.01" max:"100"`
	// How long a page of metrics takes with slow-metrics; more than the picker waits (1s) is a page that never comes.
	Delay time.Duration `json:"delay" min:"1ms" max:"1h"`
	// How many servers join with add-server.
	Count int `json:"count" min:"1" max:"1024"`
	// The group of servers that they join, where the pool has groups.
	Group string `json:"group"`
	// How long a server has to finish what it has with drain-server; left out, the pool's lifecycle.gracePeriod.
	Grace time.Duration `json:"grace" min:"1ms" max:"24h"`
	// How long until the engine is back, with an empty cache (left out: it stays dead), or the endpoint picker or the
	// frontend (left out: it is at once), or until it is as before (left out: it stays so).
	For time.Duration `json:"for" min:"0s" max:"240h"`
}

// IncidentKind is what happens.
type IncidentKind plan.IncidentKind

// What may happen.
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
)

func (IncidentKind) Values() []string {
	return []string{string(LoseRank), string(Crash), string(RestartSidecar), string(LoseIndex), string(RestartEPP),
		string(RestartFrontend), string(SlowDown), string(SlowMetrics), string(LoseTransfers), string(AddServer),
		string(DrainServer)}
}

// OfServer reports whether it happens to one server, or to its sidecar.
func (k IncidentKind) OfServer() bool { return plan.IncidentKind(k).OfServer() }

// CheckIncident tells why an incident cannot happen in a pool now, whatever its time;
// nil where it can.
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
	one := *p
	one.Incidents = []Incident{*x}
	if problems := s.checkIncidents(&one, "incident"); len(problems) > 0 {
		return fmt.Errorf("%s; expected %s", problems[0].Found, problems[0].Expected)
	}
	return nil
}

// checkIncidents tells what cannot happen in this pool.
func (s *Scenario) checkIncidents(p *Pool, path string) Problems {
	var out Problems
	for i := range p.Incidents {
		x, at := &p.Incidents[i], fmt.Sprintf("%s[%d]", path, i)
		add := func(field, found, expected string) { out = append(out, s.problem(at+field, found, expected)) }
		switch ranks := max(1, p.Server(x.Server).TensorParallelSize); {
		case len(p.Endpoints) > 0:
			add("", "given beside endpoints",
				"simulated model servers (replicas): nothing happens on purpose to someone else's")
		case x.What == "":
			add(".what", "missing", "one of "+strings.Join(x.What.Values(), ", "))
		case x.What == LoseIndex && !p.ModelServer.KVEvents.Published():
			add(".what", "lose-index where the model servers publish no KV events",
				"modelServer.kvEvents with a format beside it")
		case x.What == RestartFrontend && !p.Dynamo.Given():
			add(".what", "restart-frontend where there is no frontend",
				"dynamo.frontend: sidecar, external or graph beside it")
		case x.What == RestartSidecar && p.Sidecar == NoSidecar:
			add(".what", "restart-sidecar without sidecars", "sidecar: routing beside it")
		case x.What == RestartSidecar && x.Server >= p.Decoders():
			add(".server", fmt.Sprintf("found %d", x.Server),
				fmt.Sprintf("0 to %d, a decode server of the pool", p.Decoders()-1))
		case x.What == RestartEPP && !p.Picked():
			add(".what", "restart-epp with epp.replicas 0", "another what: there is no picker")
		case x.What == RestartEPP && x.Replica >= p.EPP.Replicas:
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
				"drain-server, or nothing: the autoscaler says how many servers there are to be")
		case x.What == SlowDown && x.Factor == 0:
			add(".factor", "missing", "how many times as long steps take, such as factor: 2")
		case x.What == SlowDown && p.ModelServer.Batching == Independent:
			add(".what", "slow-down with batching independent, whose servers take no steps",
				"batching: continuous, or another what")
		case x.What == SlowMetrics && x.Delay == 0:
			add(".delay", "missing", "how long a page of metrics takes, such as delay: 5s")
		case x.What == LoseTransfers && p.Sidecar == NoSidecar:
			add(".what", "lose-transfers where no KV cache travels", "sidecar: routing and disaggregation beside it")
		case x.What == LoseRank && ranks == 1:
			add(".what", "lose-rank where a server has one accelerator",
				"modelServer.tensorParallelSize of 2 or more beside it, or what: crash")
		case x.What == LoseRank && x.Rank >= ranks:
			add(".rank", fmt.Sprintf("found %d", x.Rank), fmt.Sprintf("0 to %d, a rank of the group", ranks-1))
		}
		for _, f := range []struct {
			field string
			wrong bool
		}{{"rank", x.What != LoseRank}, {"replica", x.What != RestartEPP}, {"factor", x.What != SlowDown},
			{"delay", x.What != SlowMetrics}, {"count", x.What != AddServer}, {"group", x.What != AddServer},
			{"grace", x.What != DrainServer}, {"server", !x.What.OfServer()},
			{"for", slices.Contains([]IncidentKind{RestartSidecar, LoseIndex, AddServer, DrainServer}, x.What)}} {
			if s.written(at+"."+f.field) && f.wrong && x.What != "" {
				add("."+f.field, "given with what: "+string(x.What),
					"nothing: it means something with another what only")
			}
		}
	}
	return out
}
