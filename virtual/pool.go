package virtual

import (
	"fmt"
	"slices"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/scenario"
)

// pool is a pool of the run: its model servers, and its endpoint pickers.
type pool struct {
	*plan.Pool
	w           *world
	replicaSets []*replicaSet // of servers that start and end during the run
	cluster     *cluster      // Envoy before the servers; nil without a policy about it
	adapters    map[string]engine.AdapterID
	voc         *tokens.Vocabulary
	forms       *modelserver.FormStore // of all servers together
	modes       modes
	verbose     bool                                   // sidecars or conversations read the text of answers
	direct      bool                                   // requests may be direct
	breaks      bool                                   // incidents break connections to servers
	hops        *hops                                  // the world's, or hops without the picker
	courses     *bounded.Store[course, *disagg.Course] // nil until the first one
	pickers     []*picking
	turns       proxy.Pickers
	outside     outside
	predicting  *predicting     // nil without a predictor
	frontend    *frontend       // nil without a Dynamo frontend
	kv          *kvWire         // nil if the model servers publish no KV events
	prefillers  []disagg.Target // the targets of sidecars in session mode
	net         *network        // between model servers
	servers     []*server
	byHost      map[string]*server
	byAddr      map[string]*server
}

// newPool adds a pool of the plan.
func (w *world) newPool(all *plan.Plan, p *plan.Pool) error {
	if len(p.Endpoints) > 0 {
		return fmt.Errorf("virtual: pool %s has external endpoints; virtual time can only play "+
			"simulated model servers (replicas)", p.Name)
	}
	x := &pool{Pool: p, w: w, byAddr: map[string]*server{}, byHost: map[string]*server{},
		voc: tokens.NewVocabulary(p.Tokens.Tokenizer), forms: modelserver.NewForms(), modes: modesOf(p),
		adapters: p.AdapterIDs()}
	w.pools = append(w.pools, x)
	if x.hops = &w.hops; !p.Picked() {
		x.hops = w.hops.unasked(&all.Hops, len(all.Pools) > 1)
	}
	_, packed := p.Tokens.Tokenizer.(tokens.Packed)
	x.verbose = w.load.Turns != nil && !packed || p.Sidecars != nil && p.Sidecars.Sessions > 0
	x.kv = newKVWire(x)
	for i := range p.Servers {
		if err := x.newServer(&p.Servers[i]); err != nil {
			return err
		}
	}
	err := x.startSidecars()
	if err != nil {
		return err
	}
	if x.net, err = newNetwork(x); err != nil {
		return err
	}
	x.startReplicaSets()
	x.cluster = newCluster(x)
	// An incident is the last event at its time: a request that arrives at the same time reaches the server before.
	for i := range p.Incidents {
		switch p.Incidents[i].Kind {
		case plan.KillServer, plan.CutServer:
			x.breaks = true
		case plan.CutClients:
			w.open = map[*request]struct{}{}
		}
		w.queue.Push(machine.FromDuration(p.Incidents[i].At), machine.ClassTimer,
			event{then, (&incident{&p.Incidents[i], x}).happen})
	}
	x.outside.open(x)
	x.predicting = newPredicting(w, p.Predictor)
	x.frontend = newFrontend(x)
	onDemand := p.Picked()
	for i := range p.Picker.Replicas {
		k, err := newPicking(x, &p.Picker.Replicas[i], i)
		if err != nil {
			return err
		}
		x.pickers = append(x.pickers, k)
		onDemand = onDemand && k.onDemand
	}
	x.direct = x.mayBeDirect()
	for _, sv := range x.servers {
		if onDemand {
			sv.core.Stats().OnlyNow()
			sv.engine.OnlyNow()
		}
	}
	return nil
}

func (x *pool) newServer(s *plan.Server) error {
	config := s.Engine
	config.Gaps, config.SingleSteps = x.w.gaps, config.SingleSteps || x.w.stepByStep
	for id := range len(x.adapters) {
		config.Adapters = append(config.Adapters, engine.AdapterID(id+1))
	}
	core, err := enginecore.New(
		enginecore.Config{Engine: config, Index: s.Index, EngineID: s.EngineID, ViaStore: x.Link.ViaStore,
			Ranks: s.TensorParallel, Publish: x.Events != nil, OutOfMemory: s.OutOfMemory})
	if err != nil {
		return fmt.Errorf("pool %s: %w", x.Name, err)
	}
	sv := &server{Server: s, pool: x, endpoint: address(x.Index, s.Index), core: core, engine: core.Engine(),
		calls: map[enginecore.Call]peer{}}
	sv.connections = connections{breakAll: func() { sv.breakOff("the connection broke", true) }, changed: x.check}
	if sv.fetched, err = simplelru.NewLRU[string, struct{}](modelserver.MaxStored, nil); err != nil {
		return err
	}
	sv.metrics = stats.Server{Engine: sv.engine.Config(), Model: x.Model(), MemoryBytes: s.MemoryBytes,
		TensorParallel: s.TensorParallel, Transfers: x.Link.Metrics, KVConsumer: !s.Prefills()}
	sv.class, sv.carried, sv.slot.changes = machine.ClassStepEnd, sv.notify, sv.changes
	x.w.servers++ // steps that begin or end at the same time do so in the order of servers
	sv.rank = x.w.servers
	sv.open(x.w, core, new(enginecore.Effects), func(i int) { sv.effect(sv.fx.List[i]) })
	sv.steps = lifecycle.EngineSteps{Recorder: x.w.rec, Endpoint: sv.endpoint, Detail: s.Steps}
	sv.steps.Timer, _ = config.Timer.(*latency.Timer)
	sv.reader = modelserver.Reader{State: state{sv},
		Config: &modelserver.Config{Seed: config.Seed, Engine: sv.engine.Config(), Models: x.Models,
			Tokenizer: x.Tokens.Tokenizer, Template: tokens.TemplateFor(x.Model()), ChatTemplate: x.Tokens.Template,
			Vocabulary: x.voc, EngineID: s.EngineID, TensorParallel: s.TensorParallel, KVRole: s.KVRole,
			PromptTokensDetails: true, Forms: x.forms, OwnNames: x.kv == nil && x.ownNames()}}
	if x.Transfers {
		sv.reader.Config.Connector = x.Link
	}
	x.servers = append(x.servers, sv)
	x.byAddr[sv.endpoint], x.byHost[sv.host()] = sv, sv
	return nil
}

// ownNames reports whether servers may name blocks by themselves: no server asks another one for blocks by name, and
// none gets the same prompt of a request twice.
func (x *pool) ownNames() bool {
	switch c := x.Sidecars; {
	case c == nil:
		return !x.Link.ViaStore
	case !c.Direct:
		return c.Config.Connector.Fetch != nil && !c.Config.Connector.Pulls && c.Config.Retries == 0 && c.Sessions == 0
	}
	return false
}

// Endpoints returns the invented addresses of a pool's servers. index is the pool's number in the scenario.
func Endpoints(index int, p *scenario.Pool) []string {
	out := make([]string, p.Servers())
	for i := range out {
		out[i] = address(index, i)
	}
	return out
}

// address returns an invented pod address of a server in a pool.
func address(pool, i int) string {
	return plan.JoinPort(fmt.Sprintf("10.%d.%d.%d", pool, i/250, i%250+1), plan.PodPort)
}

// settled checks the invariants of the pool after a run.
func (x *pool) settled() error {
	if x.cluster != nil && x.cluster.m.InFlight() > 0 {
		return fault("Envoy still has %d requests for %s", x.cluster.m.InFlight(), x.Name)
	}
	if n := len(x.net.callers) + x.net.net.InFlight(); n > 0 {
		return fault("%d KV transfers never ended", n)
	}
	if n := x.inFlowControl(); n > 0 {
		return fault("flow control still has %d requests", n)
	}
	for _, k := range x.pickers {
		if left := k.leftover(); left != "" {
			return fault("%s still has %s", k.Name, left)
		}
	}
	for _, sv := range x.servers {
		if n := len(sv.held) + len(sv.kv.pending.events) + len(sv.kv.sent); n > 0 {
			return fault("%s still has %d messages that have not arrived", sv.Name, n)
		}
		st := sv.engine.Stats()
		if n := sv.core.Busy() + st.Running + st.Waiting + len(sv.calls); n > 0 || sv.engine.KVBlocksUsed() > 0 {
			return fault("%s still has %d requests and %d KV blocks, %d handles held", sv.Name, n,
				sv.engine.KVBlocksUsed(), sv.core.Holds())
		}
		if st.Accepted != sv.ends || st.GenerationTokens != sv.made {
			return fault("%s accepted %d requests and made %d tokens, and ended %d with %d", sv.Name, st.Accepted,
				st.GenerationTokens, sv.ends, sv.made)
		}
		if sv.sidecar != nil && len(sv.sidecar.busy) > 0 {
			return fault("the sidecar of %s still serves %d requests", sv.Name, len(sv.sidecar.busy))
		}
	}
	return nil
}

// loads returns the load of all model servers until the last request ended. Later timers have nothing to do.
func (w *world) loads() (out []report.ServerLoad) {
	for _, x := range w.pools {
		for _, sv := range x.servers {
			if sv.replicaSet != nil && !sv.lived {
				continue
			}
			out = append(out, report.ServerLoad{Pool: x.Name, Name: sv.Name, Endpoint: sv.endpoint,
				Role: report.Role(sv.Role),
				Load: sv.engine.Load(w.over)})
		}
	}
	return out
}

// inFlowControl returns how many requests flow control holds or has dispatched.
func (x *pool) inFlowControl() (n int) {
	for _, k := range x.pickers {
		n += k.m.InFlight()
	}
	return n
}

// expects reports whether flow control or Envoy has a timer.
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

// waiting reports how many requests are where in the pool.
func (x *pool) waiting(add func(n int, what string)) {
	add(x.inFlowControl(), "requests that flow control holds or has dispatched")
	if x.cluster != nil {
		add(x.cluster.m.InFlight(), "that Envoy has for "+x.Name)
	}
	for _, sv := range x.servers {
		if sv.sidecar != nil {
			add(len(sv.sidecar.busy), "at the sidecar of "+sv.Name)
		}
		st := sv.engine.Stats()
		add(st.Running, "that run on "+sv.Name)
		add(st.Waiting, "that wait in the engine of "+sv.Name)
	}
}

// uses returns the use of the endpoint pickers' time, if they have a service time, and of the busiest link between
// servers.
func (w *world) uses() (out []constraint.Use) {
	for _, x := range w.pools {
		where := ""
		if len(w.pools) > 1 {
			where = x.Name
		}
		share, n := 0.0, 0
		for _, k := range x.pickers {
			if k.service != nil {
				share += k.service.m.(*epp.Service).Busy(w.over)
				n++
			}
		}
		if n > 0 {
			out = append(out, constraint.Use{Kind: constraint.Picker, Where: where, Share: share / float64(n)})
		}
		if x.net == nil {
			continue
		}
		if share := x.net.net.Busiest(w.over); share > 0 {
			out = append(out, constraint.Use{Kind: constraint.Transfer, Where: where, Share: share})
		}
	}
	return out
}
