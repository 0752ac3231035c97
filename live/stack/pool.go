package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/internal/child"
	"github.com/windtunnel/windtunnel/internal/watch"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/dynamo"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/live/predictor"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Pool is one of the scenario's pools: its model servers with their sidecars and frontends, and its endpoint
// pickers.
type Pool struct {
	*run
	pool  *plan.Pool
	index int // of the pool

	kv      *announcers
	command *child.Process // the picker of --epp-command, or nil

	// Pickers are Windtunnel's EPPs, none with an external one.
	Pickers  []*Picker
	watcher  *watch.Watch // of their configuration
	changing sync.Mutex   // one change of it at a time
	text     []byte       // the configuration in force
	// Predictor is the latency predictor, nil if there is none.
	Predictor *predictor.Server
	frontend  *dynamo.Server // Dynamo's, nil if there is none; incidents restart it
	lost      bool           // it was killed; guarded by changing
	announcer atomic.Pointer[dynamo.Announcer]
	// Fleet is the simulated model servers, nil with external ones.
	Fleet   *modelserver.Fleet
	lines   []*serve.Line  // the connections to each server, or to the sidecar before it; nil: they never break
	held    map[any]func() // lets processes that are stopped continue, by part; guarded by holding
	holding sync.Mutex     // see held
	killed  []bool         // servers whose process incidents have killed; guarded by holding
	// Pods are those of the simulated model servers, with the sidecars of a disaggregated pool.
	Pods        []*cluster.Pod
	addresses   *cluster.Addresses // of the pods
	replicaSets []*replicaSet
	lives       sync.Mutex
	lived       []bool                         // which servers are or were endpoints; guarded by lives
	updateEnvoy func(endpoints []string) error // gives it these endpoints; nil if it needs none
	ejected     []string                       // endpoints that Envoy has ejected; guarded by lives
	// which servers are not endpoints now; guarded by lives, nil if their number is fixed
	absent []bool
	// Endpoints are the addresses of the model servers or their sidecars, and Names their names. Servers that only
	// prefill come last.
	Endpoints, Names []string
}

func (s *Pool) start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.place, s.startKVManager, s.startServers, s.startSidecars,
		s.startFrontend, s.startPredictor, s.startPickers, s.awaitSubscribers} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Name identifies the pool in the scenario.
func (s *Pool) Name() string { return s.pool.Name }

// Transfers reports whether servers keep KV caches for each other.
func (s *Pool) Transfers() bool { return s.pool.Sidecars != nil }

// place gives the pods their addresses: addresses of their own if their ports matter and the scenario has none.
func (s *Pool) place(context.Context) error {
	s.addresses = new(cluster.Addresses)
	x := s.pool
	if (x.Transfers || x.Lives || plan.ScrapePort(x.Picker.File, x.Picker.Config, s.o.Plugins) != "") &&
		!slices.ContainsFunc(x.Servers, func(x plan.Server) bool { return x.ListenPort+x.SidecarPort > 0 }) {
		var taken error
		if s.addresses, taken = cluster.NewAddresses(plan.PodPort); taken != nil {
			s.o.Log.Warn(fmt.Sprintf("the pods share 127.0.0.1, on ports of their own instead of %d, %d and %d: %v",
				plan.PodPort, plan.BehindPort, x.SideChannel, taken))
		}
	}
	for _, x := range x.Servers {
		p, err := s.addresses.NewPod(&s.Run, "", x.Name)
		if err != nil {
			return err
		}
		p.Fixed = map[int]string{plan.PodPort: fixed(x.SidecarPort, "")}
		p.Fixed[x.Port] = fixed(x.ListenPort, "")
		s.Pods, s.Names = append(s.Pods, p), append(s.Names, x.Name)
	}
	return nil
}

func (s *Pool) startServers(ctx context.Context) error {
	if len(s.pool.Endpoints) > 0 {
		var err error
		s.Endpoints, err = resolve(ctx, s.pool.Endpoints)
		s.Names = s.pool.Endpoints
		return err
	}
	options := modelserver.Options{Seed: s.plan.Seed, Origin: s.Origin, Recorder: s.o.Recorder, Logger: s.o.Log}
	options.Transfer.Profile, options.Transfer.NIC = s.pool.Link, s.pool.NIC
	for i := range s.pool.Servers {
		x := &s.pool.Servers[i]
		so := s.serverOptions(x)
		so.Engine.Gaps, so.Listen = s.o.Gaps, s.Pods[i].On(x.Port)
		if s.pool.Transfers {
			so.SideChannel = s.Pods[i].On(s.pool.SideChannel)
		}
		if x.AlsoPort != 0 && s.addresses.Own() {
			so.ListenAlso = s.Pods[i].On(x.AlsoPort)
		}
		if s.pool.Sidecars == nil || x.Prefills() { // otherwise a sidecar's are the pod's
			so.Line = s.lines[i]
		}
		s.publish(&so, i)
		if s.pool.Frontend != nil {
			so.Changed = s.changes(so.Name)
		}
		if faults := &s.pool.Faults; faults.Strike() {
			so.Faults.Of = func(request string) lifecycle.Fault { return faults.Of(request, i) }
		}
		if s.o.Faults != nil {
			s.o.Faults(&so)
		}
		options.Servers = append(options.Servers, so)
	}
	fleet, err := modelserver.New(options)
	if err != nil {
		return err
	}
	s.Fleet = fleet
	if err := fleet.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.newReplicaSets()
	for i, server := range fleet.Servers() {
		if s.isAbsent(i) {
			server.Leave(ctx)
		}
	}
	s.Endpoints = fleet.Addresses()
	return nil
}

// serverOptions are those of a model server of the plan.
func (s *Pool) serverOptions(x *plan.Server) modelserver.ServerOptions {
	so := modelserver.ServerOptions{PromptTokensDetails: true,
		APIOptions: modelserver.APIOptions{TimingHeaders: true, StoreResponses: s.pool.StoreResponses},
		ServingOptions: modelserver.ServingOptions{
			Body:         serve.BodyLimits{Idle: s.pool.Picker.BodyIdle, Total: s.pool.Picker.BodyTotal},
			MaxBodyBytes: max(modelserver.DefaultMaxBody, int64(s.pool.Picker.MaxBodyBytes)+1<<16)},
		KVOptions: modelserver.KVOptions{KVRole: x.KVRole},
		TextOptions: modelserver.TextOptions{Tokenizer: s.pool.Tokens.Tokenizer, TokenizerJSON: s.pool.Tokens.JSON,
			ChatTemplate: s.pool.Tokens.Template},
		Name: x.Name, Models: s.pool.Models, Engine: x.Engine,
		Prefill: x.Draws.Prefill, TokenTime: x.Draws.TokenTime, OutputTokens: x.Draws.OutputTokens,
		TensorParallel: x.TensorParallel, MemoryBytes: x.MemoryBytes, OutOfMemory: x.OutOfMemory,
		Steps: x.Steps}
	for _, name := range s.pool.Adapters {
		so.Adapters = append(so.Adapters, modelserver.Adapter{Name: name})
	}
	return so
}

// labels are those of the endpoint with this index.
func (s *Pool) labels(i int) map[string]string {
	if i < len(s.pool.Servers) {
		return s.pool.Servers[i].Labels
	}
	return nil
}

// resolve turns names into the literal addresses that ORIGINAL_DST and the
// endpoint picker protocol need.
func resolve(ctx context.Context, endpoints []string) ([]string, error) {
	var out []string
	for _, e := range endpoints {
		host, port, err := net.SplitHostPort(e)
		if err != nil {
			return nil, fmt.Errorf("endpoint %q: %w; expected HOST:PORT", e, err)
		}
		addrs, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("endpoint %q: %w", e, err)
		}
		out = append(out, net.JoinHostPort(addrs[0], port))
	}
	return out, nil
}

// startPredictor starts the latency predictor, if there is one and a function to fit its trees.
func (s *Pool) startPredictor(context.Context) (err error) {
	if p := s.pool.Predictor; p != nil && (!p.Train || s.o.Fit != nil) {
		s.Predictor, err = s.StartPredictor(p.NewMachine(), s.o.Fit, anyPort, anyPort)
	}
	return err
}

// predicts returns the predictor's addresses for the picker; nil if there is none.
func (s *Pool) predicts() *picker.PredictorService {
	if s.Predictor == nil {
		return nil
	}
	return s.pool.Predictor.Service(s.Predictor.PredictionAddresses()[0], s.Predictor.TrainingAddress())
}

func (s *Pool) stop(ctx context.Context) error {
	var errs []error
	for _, r := range s.replicaSets {
		r.end()
	}
	s.watcher.Close()
	for _, k := range s.Pickers {
		if !k.down {
			errs = append(errs, k.Server().Stop(ctx))
		}
	}
	if s.command != nil {
		s.command.Stop(ctx, commandPatience)
	}
	if s.Predictor != nil {
		errs = append(errs, s.Predictor.Stop(ctx))
	}
	errs = append(errs, s.stopFrontend(ctx), cluster.StopPods(ctx, s.Pods))
	if s.Fleet != nil {
		s.Fleet.Stop(ctx)
	}
	if s.kv != nil && s.kv.manager != nil {
		s.kv.manager.Close()
	}
	s.addresses.Free()
	return errors.Join(errs...)
}
