package scenario

import (
	"fmt"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Plan compiles the scenario into a plan that drivers execute. It fails only if the scenario was changed after it was
// read.
func (s *Scenario) Plan() (*plan.Plan, error) {
	out := &plan.Plan{Name: s.Name, Seed: s.Seed, Load: s.Load(), Gateway: s.planGateway(), Hops: plan.Hops(s.Hops)}
	var before planned
	for i := range s.Pools {
		p, err := s.planPool(i, &before)
		if err != nil {
			return nil, err
		}
		before.add(&s.Pools[i])
		out.Pools = append(out.Pools, p)
	}
	return out, nil
}

// Load returns the load that the client sends.
func (s *Scenario) Load() plan.Load {
	w := &s.Workload
	return plan.Load{Requests: s.Generator(), Concurrency: w.Concurrency, Timeout: w.Timeout, HTTP2: w.HTTP == HTTP2,
		Chunked: w.ChunkedUpload}
}

func (s *Scenario) planGateway() plan.Gateway {
	g := plan.Gateway{Front: s.gateway, Routes: s.routes(), BodyRouter: s.gateway == nil && len(s.Pools) > 1,
		Port: s.Ports.Gateway, AdminPort: s.Ports.EnvoyAdmin}
	for i := range s.Pools {
		e := &s.Pools[i].EPP
		g.BodyBytes = max(g.BodyBytes, int(e.MaxBodyBytes))
		g.BodyTime, g.Hold = max(g.BodyTime, e.BodyTimeout), max(g.Hold, e.HoldLimit)
		g.Router.BodyIdle = max(g.Router.BodyIdle, machine.FromDuration(e.BodyIdleTimeout))
	}
	g.Router.MaxBodyBytes, g.Router.BodyTotal = g.BodyBytes, machine.FromDuration(g.BodyTime)
	return g
}

// planned counts the parts of the pools so far. Parts of one kind have consecutive ports.
type planned struct{ servers, sidecars, pickers, managers int }

func (n *planned) add(p *Pool) {
	n.servers, n.pickers, n.managers = n.servers+p.Servers(), n.pickers+p.EPP.Replicas,
		n.managers+countTrue(p.KVManager)
	if p.Sidecar != NoSidecar {
		n.sidecars += p.Decoders()
	}
}

// port returns the port of the part with a number, if the first part's port is fixed; 0 is any.
func port(first, number int) int {
	if first == 0 {
		return 0
	}
	return first + number
}

func (s *Scenario) planPool(index int, before *planned) (*plan.Pool, error) {
	p := &s.Pools[index]
	out := &plan.Pool{Name: p.Name, Index: index, Models: p.Models(), Endpoints: p.Endpoints,
		HTTP2: p.Upstream == HTTP2, Decoders: p.Decoders(), Lives: p.Lives(), Link: p.link(), Tokens: p.tokens(),
		SideChannel: p.Disaggregation.sideChannel(), Events: s.planEvents(p, before), BlockTokens: p.blockTokens(),
		Transfers: p.Sidecar != NoSidecar || p.ModelServer.KVEvents.Published(), Frontend: p.Dynamo.plan(s.Seed),
		Predictor: p.Predictor.plan(s.Seed), StoreResponses: p.ModelServer.StoreResponses}
	for _, name := range p.ModelServer.LoRAAdapters {
		if !slices.Contains(out.Adapters, name) {
			out.Adapters = append(out.Adapters, name)
		}
	}
	if b := s.upstream(index); b != nil {
		out.Upstream = &upstream.Config{Seed: s.Seed + uint64(index), Limits: b.Limits, Health: b.Health}
	}
	if d := &p.Disaggregation; p.Sidecar != NoSidecar {
		out.Sidecars = &plan.Sidecars{Config: p.sidecarConfig(), Seed: s.Seed + 1, Sessions: d.SessionCache,
			Direct: p.Sidecar == DynamoSidecar, Routes: p.Dynamo.Frontend == GraphFrontend}
	}
	out.Picker = s.planPicker(index, before)
	for _, d := range p.Deployments() {
		out.Deployments = append(out.Deployments, s.planDeployment(&d))
		for i := d.First; i < d.First+d.Places; i++ {
			sv, err := s.planServer(p, i, &d, before)
			if err != nil {
				return nil, err
			}
			sv.Deployment = len(out.Deployments) - 1
			out.Servers = append(out.Servers, sv)
		}
	}
	var err error
	if out.NIC, err = link.WireNamed(p.Disaggregation.NIC); err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	if out.Faults, err = s.faults(p); err != nil {
		return nil, err
	}
	for i := range p.Incidents {
		x := p.incident(&p.Incidents[i])
		out.Incidents = append(out.Incidents, x)
		out.Picker.Dies = out.Picker.Dies || x.Kind == plan.RestartEPP || x.Kind == plan.CutEPP
		out.Picker.Readiness = out.Picker.Readiness || x.Kind.StopsServer()
	}
	return out, nil
}

func (s *Scenario) planPicker(index int, before *planned) plan.Picker {
	p := &s.Pools[index]
	e := &p.EPP
	out := plan.Picker{File: e.Config.File, Config: e.Config.Text,
		Asking: p.asking(), Readiness: p.byHand,
		BodyIdle: e.BodyIdleTimeout, BodyTotal: e.BodyTimeout, MaxBodyBytes: int(e.MaxBodyBytes)}
	out.Asking.Response = out.Asking.Responses()
	if o, given := e.selection(); given {
		out.Objects = &o
	}
	for i := range e.Replicas {
		n := before.pickers + i
		r := plan.Replica{Name: p.PickerName(i), Number: n, Seed: s.pickerSeed(index, i), Stream: s.stream(p, i),
			Ports: plan.PickerPorts{ExtProc: port(s.Ports.ExtProc, n), Health: port(s.Ports.Health, n),
				Metrics: port(s.Ports.Metrics, n)}}
		if r.Service.Takes, r.Service.Workers, r.Service.Seed = e.ServiceTime, e.Workers, r.Seed; e.Replicas > 1 {
			r.RecordName = r.Name
		}
		out.Replicas = append(out.Replicas, r)
	}
	return out
}

func (s *Scenario) planServer(p *Pool, i int, d *Deployment, before *planned) (plan.Server, error) {
	m := d.server
	c, err := s.engine(p, d, i)
	if err != nil {
		return plan.Server{}, err
	}
	if m.Batching != Independent { // otherwise there is no KV cache, and no step
		c = c.Resolved()
	}
	out := plan.Server{Index: i, Name: d.serverName(i), Role: plan.Both, Labels: p.labelsOf(d, i), Engine: c,
		EngineID: modelserver.EngineID(s.Seed, i), TensorParallel: max(1, m.TensorParallelSize),
		MemoryBytes: m.memoryTaken(), OutOfMemory: m.outOfMemory(), Steps: m.stepDetail(), Port: plan.PodPort,
		ListenPort: port(s.Ports.Servers, before.servers+i)}
	out.Draws.Seed, out.Draws.Prefill, out.Draws.TokenTime = s.Seed, &m.Prefill, &m.InterTokenLatency
	out.Draws.OutputTokens = &p.ModelServer.OutputTokens // the same in all groups
	switch {
	case d.Prefills:
		out.Role = plan.Prefills
	case d.apart:
		out.Role = plan.Decodes
	}
	if p.Sidecar != NoSidecar || p.ModelServer.KVEvents.Published() {
		if out.KVRole = connector.RoleConsumer; d.Prefills {
			out.KVRole = connector.RoleProducer
		}
	}
	// In a pool with sidecars every model server answers at BehindPort, where document 003's scrapers ask all workers.
	switch {
	case p.Sidecar != NoSidecar && d.Prefills:
		out.AlsoPort = plan.BehindPort
	case p.Sidecar != NoSidecar:
		out.Port, out.SidecarPort = plan.BehindPort, port(s.Ports.Sidecars, before.sidecars+i) // decoders come first
	}
	return out, nil
}

func (s *Scenario) planDeployment(d *Deployment) plan.Deployment {
	l := d.lifecycle
	out := plan.Deployment{Group: d.Group, First: d.First,
		Config: deployment.Config{Name: d.Name, Seed: s.Seed, Places: d.Places, Replicas: d.Replicas,
			Startup: l.Startup, PreStop: machine.FromDuration(l.PreStop), Grace: machine.FromDuration(l.GracePeriod)}}
	if d.Autoscaling != nil {
		c := s.scaler(d)
		out.Scaler = &c
	}
	return out
}

func (s *Scenario) planEvents(p *Pool, before *planned) *plan.Events {
	e := &p.ModelServer.KVEvents
	if !e.Published() {
		return nil
	}
	out := &plan.Events{Format: string(e.Format), Interval: e.Interval, Delay: e.Delay, Connect: e.Connect}
	if p.KVManager {
		out.Manager = &plan.Manager{Number: before.managers, Port: port(s.Ports.KVManager, before.managers),
			EventsPort: port(s.Ports.KVManagerEvents, before.managers)}
	}
	return out
}

// incident compiles an incident of the pool.
func (p *Pool) incident(x *Incident) plan.Incident {
	out := plan.Incident{At: x.At, For: x.For, Kind: plan.IncidentKind(x.What), Server: x.Server, Replica: x.Replica,
		Count: max(1, x.Count), Delay: x.Delay, Grace: x.Grace, Factor: x.Factor}
	for i, d := range p.Deployments() {
		if x.What == AddServer && d.takes(x) || x.What == DrainServer && x.Server >= d.First {
			if out.Deployment = i; x.What == AddServer {
				break
			}
		}
	}
	restart := engine.Control{Op: engine.OpRestart}
	switch x.What {
	case LoseRank:
		out.Control, out.Undo = &engine.Control{Op: engine.OpFailRank, Rank: x.Rank}, &restart
	case Crash:
		out.Control, out.Undo = &engine.Control{Op: engine.OpCrash}, &restart
	case SlowDown:
		out.Control, out.Undo = pace(x.Factor), pace(1)
	}
	return out
}

// pace returns the control that makes steps take factor times as long.
func pace(factor float64) *engine.Control {
	return &engine.Control{Op: engine.OpPace, Percent: int(math.Round(100 * factor))}
}

// Incident checks and compiles an incident that happens now in a pool.
func (s *Scenario) Incident(pool int, x *Incident) (plan.Incident, error) {
	p := &s.Pools[pool]
	return p.incident(x), s.CheckIncident(p, x)
}
