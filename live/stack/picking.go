package stack

import (
	"context"
	"strings"
	"sync/atomic"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Picker is one replica of a pool's endpoint picker. Its configuration may change during the run, and it has its own
// view of the model servers.
type Picker struct {
	pool    *Pool
	plan    *plan.Replica
	replica int
	server  atomic.Pointer[epp.Standalone] // another after a restart
	down    bool                           // guarded by Pool.changing
	line    *serve.Line                    // Envoy's connections to it; nil: they never break
}

// Server is the running picker, or the last one after a crash.
func (k *Picker) Server() *epp.Standalone { return k.server.Load() }

// now decides about new requests.
func (k *Picker) now() *epp.Picking { return k.Server().Picking() }

// startPickers starts the pool's own pickers, or waits for the external one.
func (s *Pool) startPickers(ctx context.Context) error {
	if s.o.EPP.given() {
		err := s.writeEndpoints()
		if err == nil && s.o.EPP.Command != "" {
			err = s.startCommand()
		}
		if err == nil {
			err = s.awaitPicker(ctx)
		}
		return err
	}
	s.text = s.pool.Picker.Config
	for i := range s.pool.Picker.Replicas {
		k := &Picker{pool: s, plan: &s.pool.Picker.Replicas[i], replica: i}
		if s.breaks(plan.IncidentKind.BreaksPickers) {
			k.line = new(serve.Line)
		}
		flags, p, n := &s.o.Ports, k.plan.Ports, k.plan.Number
		if err := k.start(s.o.at(flags.ExtProc, p.ExtProc, n, KeptExtProc),
			s.o.at(flags.Health, p.Health, n, KeptHealth),
			s.o.at(flags.Metrics, p.Metrics, n, KeptMetrics)); err != nil {
			return err
		}
		s.Pickers = append(s.Pickers, k)
	}
	var err error
	s.watcher, err = s.watchConfig()
	return err
}

// start starts the picker at these addresses, without any knowledge.
func (k *Picker) start(extProc, health, metrics string) error {
	s := k.pool
	o := epp.StandaloneOptions{
		PickerOptions: epp.PickerOptions{Config: s.text, ConfigName: s.pool.Picker.File, Seed: k.plan.Seed,
			Readiness: s.pool.Picker.Readiness, Predictor: s.predicts(), Registry: s.o.Plugins},
		PoolOptions: epp.PoolOptions{PoolName: s.pool.Name},
		Serving:     epp.Serving{Address: extProc, HealthAddress: health, MetricsAddress: metrics},
		Picking: epp.PickingOptions{
			Config: core.Config{Stream: s.streams(k), Explain: s.o.Explain, Describe: s.o.Describe,
				Replica: k.replica, Replicas: len(s.pool.Picker.Replicas)},
			Service: k.plan.Service, Hosts: s.hosts().Address, KV: epp.KVOptions{Publisher: s.eventsOf},
			Scraped: s.o.Scraped},
		Fill: s.fill}
	o.Serving.Wrap = k.line.Listener
	s.Picker(&o)
	if o.Picking.Made.Replica = k.plan.RecordName; len(s.plan.Pools) > 1 {
		o.Picking.Made.Pool = s.pool.Name
	}
	if s.kv != nil {
		o.Picking.KV.OnIndex, o.Picking.KV.OnMessage = s.kv.understand, s.kv.indexed(k.plan.RecordName)
	}
	server, err := epp.StartStandalone(o)
	if err != nil {
		if strings.Contains(err.Error(), "address already in use") {
			err = &envoy.Error{Kind: envoy.PortTaken,
				Message: err.Error() + "; stop what listens there, or choose other ports (--port, --grpc-port, " +
					"--grpc-health-port, --metrics-port, --admin-port)", Err: err}
		}
		return err
	}
	if x := s.inputs.Load(); x != nil {
		server.Record(x)
	}
	k.server.Store(server)
	return nil
}

// fill gives a picker the pool's endpoints and objects.
func (s *Pool) fill(k *epp.Picking) error {
	if s.kv != nil {
		s.kv.mu.Lock()
		for i, e := range s.Endpoints {
			if a := s.kv.list[i]; a != nil {
				s.kv.pods[e] = a
			}
		}
		s.kv.mu.Unlock()
	}
	if o := s.pool.Picker.Objects; o != nil {
		k.Apply(*o, true)
	}
	k.SetEndpoints(s.pickerEndpoints())
	return nil
}

// kill ends the picker like a crash.
func (k *Picker) kill() {
	k.pool.hold(k, false, nil)
	k.pool.changing.Lock()
	defer k.pool.changing.Unlock()
	k.down = true
	k.Server().Kill()
}

// revive restarts a killed picker at its addresses.
func (k *Picker) revive() error {
	k.pool.changing.Lock()
	defer k.pool.changing.Unlock()
	was := k.Server()
	err := k.start(was.Addr(), was.HealthAddr(), was.MetricsAddr())
	k.down = err != nil
	return err
}

// streams is the configuration that a picker's streams share.
func (s *Pool) streams(k *Picker) stream.Config {
	c := k.plan.Stream
	// Only our own client compares; requests by hand (--keep) leave nothing.
	ours := s.plan.Load.Requests.Prefix()
	c.OnMetadata = func(request, metadata string) {
		if strings.HasPrefix(request, ours) {
			s.made.Store(request, metadata)
		}
	}
	return c
}

// listEndpoints returns the endpoints that are present, or with absent set all that the pool may have.
func (s *Pool) listEndpoints(absent bool) (out []*picker.Endpoint) {
	for i, at := range s.Endpoints {
		if absent || !s.isAbsent(i) {
			out = append(out, cluster.NewEndpoint("default", s.Names[i], at, s.labels(i)))
		}
	}
	return out
}

func (s *Pool) pickerEndpoints() []*picker.Endpoint {
	out := s.listEndpoints(false)
	s.lives.Lock()
	defer s.lives.Unlock()
	return upstream.Usable(out, s.ejected, (*picker.Endpoint).HostPort)
}

// Record writes the pickers' inputs down from now on. An external picker is not recorded.
func (s *Stack) Record(x *epp.InputLog) {
	s.inputs.Store(x)
	for _, p := range s.Pools {
		for _, k := range p.Pickers {
			k.Server().Record(x)
		}
	}
}
