package virtual

import (
	"fmt"
	"net"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler/promql"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// replicaSet drives a Deployment of the plan: servers of a pool that start and end during the run.
type replicaSet struct {
	slot[deployment.Message, *machine.Effects[deployment.Effect]]
	of     *pool
	d      *plan.Deployment
	m      *deployment.Deployment
	scaler *scaler // nil if only incidents change the number
}

// scaler drives a Deployment's autoscaler.
type scaler struct {
	slot[autoscaler.Message, *machine.Effects[autoscaler.Effect]]
	f     *replicaSet
	m     *autoscaler.Machine
	pages *metrics.Collector
	pods  bool // the autoscaler reads metrics of model servers
}

// startReplicaSets starts the replica sets of a pool whose servers start or end during the run.
func (x *pool) startReplicaSets() {
	if !x.Lives {
		return
	}
	for k := range x.Deployments {
		d := &x.Deployments[k]
		f := &replicaSet{of: x, d: d, m: deployment.New(d.Config)}
		f.class = machine.ClassTimer
		f.open(x.w, f.m, new(machine.Effects[deployment.Effect]), func(i int) { f.happens(f.fx.List[i]) })
		x.replicaSets = append(x.replicaSets, f)
		for i := range d.Config.Places {
			sv := x.servers[d.First+i]
			if sv.replicaSet = f; i < d.Config.Replicas {
				sv.phase, sv.lived = deployment.Ready, true
			}
		}
		if d.Scaler == nil {
			continue
		}
		k := &scaler{f: f, m: autoscaler.New(*d.Scaler, f.m.Status()),
			pods: slices.ContainsFunc(d.Scaler.Names(), autoscaler.OfServers)}
		k.pages = metrics.NewSeriesCollector(k.m.Wants)
		k.class, k.while = machine.ClassLook, x.w.busy
		k.open(x.w, k.m, new(machine.Effects[autoscaler.Effect]), func(i int) { k.happens(k.fx.List[i]) })
		f.scaler = k
	}
}

// start records the servers of the beginning, and starts the autoscaler.
func (f *replicaSet) start() {
	for i := range f.d.Config.Replicas {
		f.record(deployment.Effect{Kind: deployment.Started, Pod: i}, 0)
		f.record(deployment.Effect{Kind: deployment.Joined, Pod: i}, 0)
	}
	if f.scaler != nil {
		f.scaler.advance()
	}
}

func (f *replicaSet) server(pod int) *server { return f.of.servers[f.d.First+pod] }

// record records an effect on a server, as long as there are requests: a run ends with the last one.
func (f *replicaSet) record(e deployment.Effect, cut int) {
	if w := f.w; w.rec != nil && w.busy() {
		sv := f.server(e.Pod)
		if step, details := e.Recorded(f.d.Config.Name, sv.Name, cut); step != "" {
			w.rec.Record(record.Event{Time: w.now, Hop: record.Server, Step: step, Endpoint: sv.endpoint,
				Details: details})
		}
	}
}

// happens carries out an effect on a server.
func (f *replicaSet) happens(e deployment.Effect) {
	sv := f.server(e.Pod)
	was := sv.phase
	sv.phase = f.m.Phase(e.Pod)
	if e.Kind == deployment.Joined && !f.w.busy() {
		return
	}
	cut := 0
	switch e.Kind {
	case deployment.Joined:
		sv.phase = deployment.Ready // even if it leaves at the same time
		sv.restart()
		f.of.follow()
	case deployment.Left:
		sv.phase = deployment.Leaving
		if e.Was {
			f.of.follow()
		}
	case deployment.Stopped:
		f.finishing(e.Pod)
	case deployment.Ended:
		sv.control(deployment.KillEngine) // the process ends with its KV cache
	case deployment.Killed:
		cut = sv.kill()
	}
	f.record(e, cut)
	if f.scaler != nil && was != sv.phase {
		f.scaler.input(autoscaler.Status(f.m.Status()))
	}
}

// finishInterval is how often a stopped server is checked for unfinished requests.
const finishInterval = 100 * machine.Millisecond

// finishing checks repeatedly whether a stopped server has finished its requests.
func (f *replicaSet) finishing(pod int) {
	sv := f.server(pod)
	switch {
	case f.m.Phase(pod) != deployment.Stopping:
	case sv.idle():
		f.input(deployment.Idle{Pod: pod})
	default:
		f.w.queue.Push(f.w.now.Add(finishInterval), machine.ClassLook, event{then, func() { f.finishing(pod) }})
	}
}

// happens carries out an effect of the autoscaler.
func (k *scaler) happens(e autoscaler.Effect) {
	f := k.f
	if !f.w.busy() {
		return
	}
	switch e.Kind {
	case autoscaler.Scrape:
		k.scrape()
	case autoscaler.Scale:
		if f.w.rec != nil {
			f.w.rec.Record(record.Event{Time: f.w.now, Hop: record.Server, Step: record.Scaled,
				Details: e.Details(f.d.Config.Name)})
		}
		f.input(deployment.Scale{Replicas: e.To})
	}
}

// scrape reads the metrics pages for the autoscaler's Prometheus.
func (k *scaler) scrape() {
	x := k.f.of
	for i, p := range x.pickers {
		name := x.Picker.Replicas[i].Name
		s := autoscaler.Scraped{Target: name, Failed: p.down}
		if !p.down {
			p.advance()
			p.m.Metrics(x.w.now, x.Name, k.m.Wants, func(f epp.Metric) {
				s.Samples = append(s.Samples,
					promql.Sample{Name: f.Name, Labels: append(f.Labels, metrics.Label{Name: "pod", Value: name}),
						Value: f.Value})
			})
		}
		k.input(s)
	}
	if !k.pods {
		return
	}
	for _, sv := range x.servers {
		s := autoscaler.Scraped{Target: sv.Name, Failed: sv.absent() || sv.paused}
		if !s.Failed {
			sv.advance()
			look := sv.look(x.w.now)
			look.Write(k.pages)
			s.Samples = promql.Of(k.pages.Take(), metrics.Label{Name: "pod", Value: sv.Name})
		}
		k.input(s)
	}
}

// absent reports whether the server refuses connections.
func (s *server) absent() bool {
	return s.cut || s.killed || s.gone()
}

// gone reports whether the server's Deployment runs no process of it.
func (s *server) gone() bool {
	return s.replicaSet != nil && (s.phase == deployment.Absent || s.phase == deployment.Starting)
}

// ready reports whether pickers may choose the server.
func (s *server) ready() bool { return s.replicaSet == nil || s.phase == deployment.Ready }

// restart starts a new process of the server.
func (s *server) restart() {
	s.lived, s.killed = true, false
	s.pause(false)
	s.control(deployment.StartEngine)
	if s.sidecar != nil {
		if err := s.sidecar.forget(s.pool.Sidecars.Sessions); err != nil {
			panic(fmt.Sprintf("virtual: %v", err)) // the same number was taken before
		}
	}
}

// serves notes a request at a server that may be killed.
func (s *server) serves(a *answering) {
	if s.replicaSet == nil && !s.pool.breaks {
		return
	}
	if len(s.has) == cap(s.has) {
		s.has = slices.DeleteFunc(s.has, func(a *answering) bool { return a.resp.Over() })
	}
	s.has = append(s.has, a)
}

// forgets drops a request that has ended.
func (s *server) forgets(a *answering) {
	if i := slices.Index(s.has, a); i >= 0 {
		s.has = slices.Delete(s.has, i, i+1)
	}
}

// idle reports whether a server and its sidecar have no requests.
func (s *server) idle() bool {
	s.advance()
	st := s.engine.Stats()
	s.has = slices.DeleteFunc(s.has, func(a *answering) bool { return a.resp.Over() })
	return !s.paused && len(s.has)+s.core.Busy()+s.core.Holds()+st.Running+st.Waiting+len(s.calls) == 0 &&
		(s.sidecar == nil || len(s.sidecar.busy) == 0)
}

// kill ends a server like SIGKILL, and returns how many requests broke off.
func (s *server) kill() (n int) {
	n = s.breakOff("the server was killed", false)
	s.pause(false)
	s.control(deployment.KillEngine)
	return n
}

// breakOff breaks the connections of all requests at a server and at its sidecar, and returns how many there were.
func (s *server) breakOff(reason string, reset bool) (n int) {
	if s.sidecar != nil {
		n = len(s.sidecar.busy)
		s.sidecar.breakOff()
	}
	for _, a := range s.has {
		if !a.resp.Over() {
			n++
			a.gone(reason)
			a.r.cut(reset)
		}
	}
	s.has = nil
	return n
}

// follow informs sidecars, Envoy and the pickers of the servers that are ready.
func (x *pool) follow() {
	x.prefillers = nil
	for _, sv := range x.servers[x.Decoders:] {
		if sv.ready() && x.Sidecars != nil {
			x.prefillers = append(x.prefillers, disagg.ParseTargets(sv.endpoint)...)
		}
	}
	x.healthy()
	if x.cluster != nil {
		x.cluster.input(upstream.Endpoints{List: x.serving()})
	}
	x.applyToPickers()
}

// varies reports whether the endpoints of the pickers may change.
func (x *pool) varies() bool { return x.replicaSets != nil || x.cluster != nil && x.cluster.ejects }

// applyToPickers sends the pickers their endpoints.
func (x *pool) applyToPickers() {
	for _, k := range x.pickers {
		k.Input(epp.Endpoints{List: x.endpoints()})
	}
}

// healthy updates the servers to which Envoy sends requests without a picker.
func (x *pool) healthy() {
	x.modes.servers = nil
	for _, sv := range x.servers[:x.Decoders] {
		if sv.ready() && !sv.absent() && !sv.core.Dead() {
			x.modes.servers = append(x.modes.servers, sv.endpoint)
		}
	}
}

// check updates Envoy's view of the servers at its next health check, if it makes any.
func (x *pool) check() {
	if x.modes.failOpen || !x.Picked() {
		x.w.queue.Push(proxy.NextCheck(x.w.now), machine.ClassTimer, event{then, x.healthy})
	}
}

// serving returns the addresses of all servers that are ready.
func (x *pool) serving() (out []string) {
	for _, sv := range x.servers {
		if sv.ready() {
			out = append(out, sv.endpoint)
		}
	}
	return out
}

// endpoints returns the endpoints that a picker may choose.
func (x *pool) endpoints() (out []*picker.Endpoint) {
	if x.cluster != nil {
		defer func() { out = upstream.Usable(out, x.cluster.out, (*picker.Endpoint).HostPort) }()
	}
	for _, sv := range x.servers {
		if sv.ready() {
			host, port, _ := net.SplitHostPort(sv.endpoint)
			out = append(out, picker.NewEndpoint("default", sv.Name, host, port, sv.Labels))
		}
	}
	return out
}
