package stack

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/epp"
)

// ConfigError is an EndpointPickerConfig that the picker refuses.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap is the picker's own error.
func (e *ConfigError) Unwrap() error { return e.Err }

// remembered is how many decisions /debug/decisions shows.
const remembered = 1000

// Picker is one replica of a pool's endpoint picker. Its configuration may change during the run, and it has its own
// view of the model servers.
type Picker struct {
	*epp.Server
	pool        *Pool
	plan        *plan.Replica
	replica     int
	generations atomic.Pointer[epp.Generations] // another after a restart
	metrics     *epp.PickMetrics
	stream      stream.Config
	down        bool // guarded by Pool.changing
}

// now is the generation that decides about new requests.
func (k *Picker) now() *epp.Generation { return k.generations.Load().Current() }

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
	o := epp.Options{Serving: epp.Serving{Address: extProc, HealthAddress: health, MetricsAddress: metrics},
		Now: s.Now, Log: s.o.Log, Registry: prometheus.NewRegistry()}
	k.metrics, k.stream = epp.NewPickMetrics(o.Registry, s.pool.Name), s.streams(k)
	generations := epp.NewGenerations()
	g, err := s.generation(k, s.pool.Picker.File, s.text)
	if err != nil {
		return err
	}
	generations.Replace(g)
	k.generations.Store(generations)
	if x := s.inputs.Load(); x != nil {
		generations.Record(x)
	}
	o.Registry.MustRegister(generations)
	o.Pickers, o.Pages = generations, generations.Pages()
	server, err := epp.Start(o)
	if err != nil {
		generations.Close()
		if strings.Contains(err.Error(), "address already in use") {
			err = &envoy.Error{Kind: envoy.PortTaken,
				Message: err.Error() + "; stop what listens there, or choose other ports (--port, --grpc-port, " +
					"--grpc-health-port, --metrics-port, --admin-port)", Err: err}
		}
		return err
	}
	k.Server = server
	return nil
}

// kill ends the picker like a crash.
func (k *Picker) kill() {
	k.pool.changing.Lock()
	defer k.pool.changing.Unlock()
	k.down = true
	k.Kill()
	k.generations.Load().Close()
}

// revive restarts a killed picker at its addresses.
func (k *Picker) revive() error {
	k.pool.changing.Lock()
	defer k.pool.changing.Unlock()
	err := k.start(k.Addr(), k.HealthAddr(), k.MetricsAddr())
	k.down = err != nil
	return err
}

// generation is the picker of one configuration, with the parts that keep its view of the model servers fresh.
func (s *Pool) generation(k *Picker, file string, config []byte) (g *epp.Generation, err error) {
	o := epp.PickerOptions{Config: config, ConfigName: file, Seed: k.plan.Seed, AllowExperimental: true,
		Predictor: s.predicts(), History: remembered, Registry: s.o.Plugins, Log: s.o.Log}
	built, err := epp.BuildPicker(&o)
	if err != nil {
		return nil, &ConfigError{err}
	}
	made := o.Made()
	if made.Replica = k.plan.Told; len(s.plan.Pools) > 1 {
		made.Pool = s.pool.Name
	}
	g = &epp.Generation{Registry: prometheus.NewRegistry()}
	g.Picking, err = epp.NewPicking(epp.PickingOptions{
		Config: core.Config{Picker: built, Stream: k.stream, EmitScores: true, DocumentHeaders: true,
			Explain: s.o.Explain, History: remembered, Describe: s.o.Describe,
			Replica: k.replica, Replicas: len(s.pool.Picker.Replicas)},
		Service: k.plan.Service, Made: made, Now: s.Now, PoolName: s.pool.Name,
		Metrics: k.metrics, Hosts: s.hosts().Address, KV: s.kvOptions(k, g.Registry), Scraped: s.o.Scraped,
		Log: s.o.Log})
	if err != nil {
		return nil, &ConfigError{fmt.Errorf("%s: %w", file, err)}
	}
	begun := g // a return with an error sets g to nil first
	defer func() {
		if err != nil {
			begun.Close()
		}
	}()
	if err := epp.ObservePool(g.Registry, g.Picking, s.pool.Name); err != nil {
		return nil, err
	}
	endpoints, err := s.pickerEndpoints()
	if err != nil {
		return nil, err
	}
	if o := s.pool.Picker.Objects; o != nil {
		g.Apply(*o, true)
	}
	g.SetEndpoints(endpoints)
	return g, nil
}

// streams is the configuration that a picker's streams share.
func (s *Pool) streams(k *Picker) stream.Config {
	c := k.plan.Stream
	c.Recorder, c.Trace = s.o.Recorder, s.o.Trace
	// Only our own client compares; requests by hand (--keep) leave nothing.
	ours := s.plan.Load.Requests.Prefix()
	c.OnMetadata = func(request, metadata string) {
		if strings.HasPrefix(request, ours) {
			s.made.Store(request, metadata)
		}
	}
	return c
}

// kvOptions are the options of a picker's KV indexes, which begin to listen now.
func (s *Pool) kvOptions(k *Picker, registry prometheus.Registerer) epp.KVOptions {
	o := epp.KVOptions{Registry: registry, Publisher: s.eventsOf}
	if s.kv != nil {
		s.kv.mu.Lock()
		for i, e := range s.Endpoints {
			if a := s.kv.list[i]; a != nil {
				s.kv.pods[e] = a
			}
		}
		s.kv.mu.Unlock()
		o.OnIndex, o.OnMessage = s.kv.understand, s.kv.indexed(k.plan.Told)
	}
	return o
}

func (s *Pool) pickerEndpoints() ([]*picker.Endpoint, error) {
	var out []*picker.Endpoint
	for i, e := range s.Endpoints {
		if s.isAbsent(i) {
			continue
		}
		host, port, err := net.SplitHostPort(e)
		if err != nil {
			return nil, err
		}
		out = append(out, picker.NewEndpoint("default", s.Names[i], host, port, s.labels(i)))
	}
	s.lives.Lock()
	defer s.lives.Unlock()
	return upstream.Usable(out, s.ejected, (*picker.Endpoint).HostPort), nil
}

// Record writes the pickers' inputs down from now on. An external picker is not recorded.
func (s *Stack) Record(x *epp.InputLog) {
	s.inputs.Store(x)
	for _, p := range s.Pools {
		for _, k := range p.Pickers {
			k.generations.Load().Record(x)
		}
	}
}
