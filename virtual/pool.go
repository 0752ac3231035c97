package virtual

import (
	"fmt"
	"slices"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/connector"
	"github.com/windtunnel/windtunnel/core/disagg"
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/core/tokens"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// pool is one of the run's pools: its model servers, and its endpoint picker.
type pool struct {
	w          *world
	index      int
	spec       *scenario.Pool
	fleets     []*fleet // of servers that come and go
	cluster    *cluster // what Envoy does before the servers, nil where no policy says anything of it
	name       string
	model      string
	adapters   map[string]engine.AdapterID
	voc        *tokens.Vocabulary
	forms      *modelserver.FormStore // of all servers together
	modes      modes
	lost       stream.Answer // where a server is lost before it answers
	maxBody    int           // bytes
	verbose    bool          // sidecars go on from what answers say
	direct     bool          // requests may be direct
	hops       *hops         // the world's, or without the picker
	courses    courses
	pickers    []*picking
	turns      proxy.Pickers
	mortal     bool // some of them dies in the run
	outside    outside
	predicting *predicting     // nil where nothing predicts
	frontend   *frontend       // nil where there is no Dynamo frontend
	kv         *kvWire         // of model servers that publish KV events
	sessions   int             // that each sidecar remembers
	prefillers []disagg.Target // whom sidecars call in session mode
	net        *network        // between model servers
	servers    []*server
	byHost     map[string]*server
	byAddr     map[string]*server
	faults     lifecycle.Faults
}

// newPool makes the pool with this index.
func (w *world) newPool(s *scenario.Scenario, index int) error {
	p := &s.Pools[index]
	if len(p.Endpoints) > 0 {
		return fmt.Errorf("virtual: pool %s has endpoints that someone else runs; virtual time can only play "+
			"simulated model servers (replicas)", p.Name)
	}
	x := &pool{w: w, index: index, spec: p, name: p.Name, byAddr: map[string]*server{}, byHost: map[string]*server{},
		model: p.Model,
		voc:   tokens.NewVocabulary(p.Tokenizer()), forms: modelserver.NewForms(), modes: modesOf(index, p),
		adapters: p.Adapters(), lost: proxy.Lost(proxy.Ended(p.Upstream == scenario.HTTP2), 1)}
	w.pools = append(w.pools, x)
	if x.hops = &w.hops; !p.Picked() {
		x.hops = w.hops.unasked(&s.Hops, len(s.Pools) > 1)
	}
	_, packed := p.Tokenizer().(tokens.Packed)
	x.verbose = w.load.Turns != nil && !packed || p.Disaggregation.SessionCache > 0
	x.maxBody = max(1, int(p.EPP.MaxBodyBytes))
	x.kv = newKVWire(x, p)
	var err error
	if x.faults, err = s.Faults(p); err != nil {
		return err
	}
	for i := range p.Servers() {
		if err := x.newServer(s, p, i); err != nil {
			return err
		}
	}
	if err := x.startSidecars(s, p); err != nil {
		return err
	}
	if x.net, err = newNetwork(x, p); err != nil {
		return err
	}
	x.startFleets(s, p)
	x.cluster = newCluster(x, s)
	// An incident is the last of its moment: who arrives then finds the server as
	// it was, and sees it die.
	for i := range p.Incidents {
		x.mortal = x.mortal || p.Incidents[i].What == scenario.RestartEPP
		w.queue.Push(machine.FromDuration(p.Incidents[i].At), machine.ClassTimer,
			event{happens, &incident{&p.Incidents[i], x}})
	}
	x.outside.open(x, p)
	x.predicting = newPredicting(w, s, &p.Predictor)
	x.frontend = newFrontend(x, s, p)
	onDemand := 0
	for i := range p.EPP.Replicas {
		k, err := newPicking(x, s, p, i)
		if err != nil {
			return err
		}
		x.pickers = append(x.pickers, k)
		if k.onDemand {
			onDemand++
		}
	}
	x.direct = x.mayBeDirect(p)
	for _, sv := range x.servers {
		if p.Picked() && onDemand == len(x.pickers) {
			sv.core.Stats().OnlyNow()
			sv.engine.OnlyNow()
		}
	}
	return nil
}

func (x *pool) newServer(s *scenario.Scenario, p *scenario.Pool, i int) error {
	config, err := s.Engine(p, i)
	if err != nil {
		return err
	}
	config.Gaps, config.SingleSteps = x.w.gaps, config.SingleSteps || x.w.stepByStep
	m := p.Server(i)
	own := m
	// the engine says how long all takes but how long answers are, which is the pool's
	if m.Batching != scenario.Independent {
		own = &p.ModelServer
	}
	for id := range len(x.adapters) {
		config.Adapters = append(config.Adapters, engine.AdapterID(id+1))
	}
	core, err := enginecore.New(
		enginecore.Config{Engine: config, Index: i, EngineID: modelserver.EngineID(s.Seed, i),
			ViaStore: p.Link().ViaStore,
			Ranks:    m.TensorParallelSize, Publish: x.kv != nil, OutOfMemory: m.OutOfMemory()})
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.Name, err)
	}
	sv := &server{pool: x, draws: s.Draws(own), index: i, name: p.ServerName(i),
		role: report.RoleOf(p.Prefills(i), p.Disaggregation.PrefillReplicas > 0), endpoint: address(x.index, i),
		core: core, engine: core.Engine(), calls: map[enginecore.Call]peer{}}
	if sv.fetched, err = simplelru.NewLRU[string, struct{}](modelserver.MaxStored, nil); err != nil {
		return err
	}
	sv.told = stats.Server{Engine: sv.engine.Config(), Model: p.Model, MemoryBytes: m.MemoryTaken(),
		TensorParallel: m.TensorParallelSize,
		Transfers:      p.Link().Metrics, KVConsumer: !p.Prefills(i)}
	sv.class, sv.carried, sv.slot.changes = machine.ClassStepEnd, sv.tell, sv.changes
	x.w.servers++ // steps that begin or end at one moment do so in the order of servers, whoever looked at one before
	sv.rank = x.w.servers
	sv.open(x.w, core, new(enginecore.Effects), func(i int) { sv.effect(sv.fx.List[i]) })
	sv.steps = lifecycle.EngineSteps{Recorder: x.w.rec, Endpoint: sv.endpoint, Detail: m.StepDetail()}
	sv.steps.Timer, _ = config.Timer.(*latency.Timer)
	sv.reader = modelserver.Reader{State: state{sv},
		Config: &modelserver.Config{Seed: s.Seed, Engine: sv.engine.Config(), Models: p.Models(),
			Tokenizer: p.Tokenizer(), Template: tokens.TemplateFor(x.model), ChatTemplate: p.Template(),
			Vocabulary: x.voc,
			EngineID:   core.Config().EngineID, TensorParallel: max(1, m.TensorParallelSize),
			PromptTokensDetails: true, Forms: x.forms, OwnNames: x.kv == nil && ownNames(p)}}
	if c := sv.reader.Config; p.Sidecar != scenario.NoSidecar || p.ModelServer.KVEvents.Published() {
		c.Connector = p.Link()
		if c.KVRole = connector.RoleConsumer; p.Prefills(i) {
			c.KVRole = connector.RoleProducer
		}
	}
	x.servers = append(x.servers, sv)
	x.byAddr[sv.endpoint], x.byHost[sv.host()] = sv, sv
	return nil
}

// ownNames says that no server asks another for blocks by their names, and that none has the
// same prompt of a request twice.
func ownNames(p *scenario.Pool) bool {
	switch p.Sidecar {
	case scenario.NoSidecar:
		return !p.Link().ViaStore
	case scenario.RoutingSidecar:
		c := p.SidecarConfig()
		return c.Connector.Fetch != nil && !c.Connector.Pulls && c.Retries == 0 && p.Disaggregation.SessionCache == 0
	}
	return false
}

// Endpoints are the made-up addresses of a pool's servers; index is the pool's number
// in the scenario.
func Endpoints(index int, p *scenario.Pool) []string {
	out := make([]string, p.Servers())
	for i := range out {
		out[i] = address(index, i)
	}
	return out
}

// address is a made-up one that looks like a pod's, of a pool and a server in it.
func address(pool, i int) string {
	return scenario.JoinPort(fmt.Sprintf("10.%d.%d.%d", pool, i/250, i%250+1), scenario.PodPort)
}

// settled is what must hold of the pool after every run.
func (x *pool) settled() error {
	if x.cluster != nil && x.cluster.m.InFlight() > 0 {
		return fmt.Errorf("virtual: Envoy still has %d requests for %s; this is a fault of windtunnel",
			x.cluster.m.InFlight(), x.name)
	}
	if n := len(x.net.askers) + x.net.net.InFlight(); n > 0 {
		return fmt.Errorf("virtual: %d KV transfers never ended; this is a fault of windtunnel", n)
	}
	if n := x.inFlowControl(); n > 0 {
		return fmt.Errorf("virtual: flow control still has %d requests; this is a fault of windtunnel", n)
	}
	for _, sv := range x.servers {
		st := sv.engine.Stats()
		if n := sv.core.Busy() + st.Running + st.Waiting + len(sv.calls); n > 0 || sv.engine.KVBlocksUsed() > 0 {
			return fmt.Errorf("virtual: %s still has %d requests and %d KV blocks, %d handles held; this is a fault "+
				"of windtunnel",
				sv.name, n, sv.engine.KVBlocksUsed(), sv.core.Holds())
		}
		if st.Accepted != sv.ends || st.GenerationTokens != sv.made {
			return fmt.Errorf("virtual: %s accepted %d requests and made %d tokens, and ended %d with %d; this is a "+
				"fault of windtunnel",
				sv.name, st.Accepted, st.GenerationTokens, sv.ends, sv.made)
		}
		if sv.sidecar != nil && len(sv.sidecar.busy) > 0 {
			return fmt.Errorf("virtual: the sidecar of %s still serves %d requests; this is a fault of windtunnel",
				sv.name, len(sv.sidecar.busy))
		}
	}
	return nil
}

// loads are how full all model servers were until the last request ended: timers that go off
// later find nothing to do.
func (w *world) loads() (out []report.ServerLoad) {
	for _, x := range w.pools {
		for _, sv := range x.servers {
			if sv.fleet != nil && !sv.lived {
				continue
			}
			out = append(out, report.ServerLoad{Pool: x.name, Name: sv.name, Endpoint: sv.endpoint, Role: sv.role,
				Load: sv.engine.Load(w.over)})
		}
	}
	return out
}

// inFlowControl is how many requests flow control holds or has let go.
func (x *pool) inFlowControl() (n int) {
	for _, k := range x.pickers {
		n += k.m.InFlight()
	}
	return n
}

// expects says whether flow control has something to do at a time to come.
func (x *pool) expects() bool {
	return x.cluster != nil && x.cluster.m.Timed() || slices.ContainsFunc(x.pickers, func(k *picking) bool {
		fc := k.m.FlowControl()
		if fc == nil {
			return false
		}
		_, due := fc.Next()
		return due
	})
}

// waiting tells how many requests are where in the pool.
func (x *pool) waiting(add func(n int, what string)) {
	add(x.inFlowControl(), "requests that flow control holds or has let go")
	if x.cluster != nil {
		add(x.cluster.m.InFlight(), "that Envoy has for "+x.name)
	}
	for _, sv := range x.servers {
		if sv.sidecar != nil {
			add(len(sv.sidecar.busy), "at the sidecar of "+sv.name)
		}
		st := sv.engine.Stats()
		add(st.Running, "that run on "+sv.name)
		add(st.Waiting, "that wait in the engine of "+sv.name)
	}
}
