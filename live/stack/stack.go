// Package stack starts the parts of a live run in order (model servers, the
// endpoint picker, Envoy), sends the workload through them, and stops them in
// reverse. It is the only package in live that knows the others.
package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/gateway"
	core "github.com/windtunnel/windtunnel/core/gateway/bbr"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
	"github.com/windtunnel/windtunnel/internal/rundir"
	"github.com/windtunnel/windtunnel/live/bbr"
	"github.com/windtunnel/windtunnel/live/client"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/scenario"
)

// The ports of a stack that is kept up, but not of a run's own stack: the ecosystem's for the EPP, the llm-d chart's
// for the gateway.
const (
	KeptGateway = "127.0.0.1:8081"
	KeptExtProc = "127.0.0.1:9002"
	KeptMetrics = "127.0.0.1:9090"
	KeptHealth  = "127.0.0.1:9003"
	KeptAdmin   = "127.0.0.1:19000" // Envoy's own pages
)

const anyPort = cluster.AnyPort

// Options of a stack.
type Options struct {
	Scenario *scenario.Scenario
	// Origin is when the run began; events are timed from it. Zero is now.
	Origin time.Time
	// Recorder takes every hop's events; nil records nothing.
	Recorder record.Recorder
	// Trace, if not nil, makes Windtunnel's endpoint pickers and sidecars pass on a traceparent of their spans, and
	// ClientTrace makes its client send one.
	Trace, ClientTrace *tracing.IDs
	// Keep uses the well-known ports where Ports has no other.
	Keep bool
	// Stay lets the number of servers change after the scenario's last request, too.
	Stay bool
	// Ports are those to listen on.
	Ports Ports
	// EPP is an external endpoint picker; without one Windtunnel's is started.
	EPP Elsewhere
	// EnvoyPath names the Envoy to use; empty looks for one.
	EnvoyPath string
	// Dir is the directory of the run's files; empty makes a temporary directory, which is removed when the stack stops
	// without an error. After a kill the next run removes it, and after an error the first run a week later.
	Dir string
	// Envoy changes the gateway's configuration before it starts; may be nil.
	Envoy func(*envoy.Config)
	// Plugins are the types of plug-ins that the picker has; nil is all.
	Plugins picker.Registry
	// Faults spoil requests at the model servers; may be nil.
	Faults func(server *modelserver.ServerOptions)
	// Describe prepares for a Record: requests are described well enough for a replay.
	Describe bool
	// Explain is how many endpoints of a decision the record of its request
	// explains; 0 explains nothing.
	Explain int
	// Fit fits the trees of latency predictors; with nil none learns.
	Fit cluster.Fitter
	// Reloaded is called for every change of the picker's configuration during the run, with the reason if it was
	// refused; may be nil.
	Reloaded func(file string, err error)
	// Gaps receives the times between tokens; may be nil.
	Gaps engine.Gaps
	// Scraped receives the time in which the picker fetched and read a page of metrics; may be nil.
	Scraped func(took time.Duration)
	// Report receives what the start waits for, in words for people; may be nil.
	Report func(what string)
	// Log is for a person who debugs; nil is silent.
	Log *slog.Logger

	// moment waits for an incident's beginning or end; nil waits for its time.
	moment func(ctx context.Context, step record.Step)
}

// Ports are the ports of 127.0.0.1 on which a stack listens for others. 0 is the scenario's port; if it has none, a
// free port, or with Keep the well-known one. Frontend, the Dynamo frontend's, is a free port without Keep and with it.
type Ports struct{ Gateway, ExtProc, Health, Metrics, Admin, Frontend int }

// AnyPort, among Ports, is a free one, whatever the scenario and Keep say.
const AnyPort = -1

// at is the address of the part with this number among those of its kind. The port of the first is the flag's. Without
// a flag it is the plan's for this part, and without that and with Keep the well-known one for the first.
func (o *Options) at(flag, planned, number int, kept string) string {
	switch {
	case flag > 0:
		return fixed(flag+number, anyPort)
	case flag < 0:
		return anyPort
	case o.Keep && planned == 0 && number == 0:
		return kept
	}
	return fixed(planned, anyPort)
}

// gatewayAt and adminAt are Envoy's addresses, for clients and for its own pages.
func (s *run) gatewayAt() string {
	return s.o.at(s.o.Ports.Gateway, s.plan.Gateway.Port, 0, KeptGateway)
}

func (s *run) adminAt() string {
	return s.o.at(s.o.Ports.Admin, s.plan.Gateway.AdminPort, 0, KeptAdmin)
}

// run is shared by the parts of a stack.
type run struct {
	o    Options
	plan *plan.Plan
	cluster.Run
	made   sync.Map // request id → metadata that an EPP generated
	inputs atomic.Pointer[epp.InputLog]
	// clients has the connections to Envoy; nil: they never break.
	clients *serve.Line

	// Dir holds the run's configuration and logs.
	Dir string
}

// Stack is a running client-facing gateway with everything behind it.
type Stack struct {
	*run
	ownDir *rundir.Dir // nil if Options.Dir is given

	// Startup is how long the start took.
	Startup time.Duration
	Binary  envoy.Binary
	Gateway *cluster.Gateway
	// Pools are the scenario's, in its order.
	Pools []*Pool
	// Router reads requests' models if there are several pools; otherwise it is nil.
	Router *bbr.Server

	loads atomic.Int64 // from More

	acting sync.Mutex         // guards the end of life
	life   context.Context    // ends when Stop begins
	end    context.CancelFunc // of it
	acts   sync.WaitGroup     // actions under way, and the following of Envoy's ejections
}

// Start starts the whole stack. After an error nothing runs, and the error names the directory of the logs.
func Start(ctx context.Context, o Options) (s *Stack, err error) {
	if len(o.Scenario.Pools) == 0 {
		return nil, errors.New("stack: expected a pool, the scenario has none")
	}
	what, err := o.Scenario.Plan()
	if err != nil {
		return nil, err
	}
	if len(what.Pools) > 1 && o.EPP.given() {
		return nil, &epp.ConfigError{Err: fmt.Errorf("the scenario has %d pools, and an external endpoint picker "+
			"serves one; expected one pool with --epp or --epp-command", len(what.Pools))}
	}
	if !what.Pools[0].Picked() && o.EPP.given() {
		return nil, &epp.ConfigError{Err: errors.New("the scenario's pool has no endpoint picker (epp.replicas 0), " +
			"and an external one is given; expected a pool with one, or neither --epp nor --epp-command")}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Report == nil {
		o.Report = func(string) {}
	}
	if o.Origin.IsZero() {
		o.Origin = time.Now()
	}
	s = &Stack{run: &run{o: o, plan: what, Run: cluster.Run{Origin: o.Origin, Recorder: o.Recorder, Trace: o.Trace,
		Log: o.Log}, Dir: o.Dir}}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	began := time.Now()
	started := s // a return with an error sets s to nil first
	defer func() {
		if err != nil {
			_ = started.stop(context.Background()) // the first error is the one to return
			if ctx.Err() != nil {
				_ = started.ownDir.End(nil) // the logs of an interrupted start are of no use
				return
			}
			err = started.ownDir.End(err)
		}
	}()
	if s.Binary, err = envoy.Find(ctx, envoy.FindOptions{Path: o.EnvoyPath, Log: o.Log, Report: o.Report}); err != nil {
		return nil, err
	}
	if err = checkDescriptors(what); err != nil {
		return nil, err
	}
	if s.Dir == "" {
		if s.ownDir, err = rundir.New(os.TempDir(), rundir.Run, o.Log); err != nil {
			return nil, err
		}
		s.Dir = s.ownDir.Path
	}
	for i, x := range what.Pools {
		p := &Pool{run: s.run, pool: x, index: i, held: map[any]func(){}, lines: make([]*serve.Line, len(x.Servers)),
			killed: make([]bool, len(x.Servers))}
		if p.breaks(plan.IncidentKind.BreaksServers) {
			for i := range p.lines {
				p.lines[i] = new(serve.Line)
			}
		}
		if p.breaks(plan.IncidentKind.BreaksClients) {
			s.clients = new(serve.Line)
		}
		s.Pools = append(s.Pools, p)
		if err = p.start(ctx); err != nil {
			return nil, err
		}
	}
	for _, step := range []func(context.Context) error{s.startRouter, s.startGateway} {
		if err = step(ctx); err != nil {
			return nil, err
		}
	}
	s.Startup = time.Since(began)
	return s, nil
}

// checkDescriptors says whether this machine can hold all requests that are in flight at once.
func checkDescriptors(s *plan.Plan) error {
	http1 := 0
	if !s.Load.HTTP2 {
		http1++
	}
	if slices.ContainsFunc(s.Pools, func(p *plan.Pool) bool { return !p.HTTP2 }) {
		http1++
	}
	return envoy.CheckDescriptors(min(s.Load.Concurrency, s.Load.Requests.Requests), http1)
}

// Listening has the addresses of the pickers and the model servers of a pool.
type Listening struct{ Pickers, Endpoints []string }

// GatewayConfig is the gateway's configuration for a plan, with the addresses of each pool's pickers and model servers,
// of the body-based router, which several pools have, and of the gateway.
func GatewayConfig(sc *plan.Plan, at []Listening, router, listen string) envoy.Config {
	c := envoy.Config{Listen: listen}
	g := &sc.Gateway
	c.Limits.BodyBytes, c.Limits.BodyTime, c.Limits.Hold = g.BodyBytes, g.BodyTime, g.Hold
	for i, p := range sc.Pools {
		pool := envoy.Pool{Name: p.Name, Endpoints: at[i].Endpoints, HTTP2: p.HTTP2}
		if at[i].Pickers != nil {
			pool.Picker = envoy.Processor{Addresses: at[i].Pickers, Asking: p.Picker.Asking}
		} else {
			pool.Routing = envoy.RoundRobin
		}
		if p.Picker.Asking.FailOpen || at[i].Pickers == nil {
			pool.HealthPath = "/health"
		}
		c.Pools = append(c.Pools, pool)
		if len(sc.Pools) > 1 {
			c.Routes = append(c.Routes,
				envoy.Route{Headers: map[string]string{core.HeaderBaseModel: p.Model()}, Pool: p.Name})
		}
	}
	if len(sc.Pools) > 1 { // a request without a model goes to the first
		c.BodyRouter = &envoy.Processor{Addresses: []string{router},
			Asking: gateway.Asking{Response: gateway.BodyUnseen}}
		c.Routes = append(c.Routes, envoy.Route{Pool: sc.Pools[0].Name})
	}
	return c
}

// startRouter starts the body-based router if there are several pools.
func (s *Stack) startRouter(context.Context) (err error) {
	if g := &s.plan.Gateway; g.BodyRouter {
		s.Router, err = cluster.StartRouter(core.Closed(g.Routes.Find), g.Router, s.Now)
	}
	return err
}

func (s *Stack) startGateway(ctx context.Context) error {
	at := make([]Listening, len(s.Pools))
	for i, p := range s.Pools {
		at[i] = Listening{p.ExtProc(), p.ready()}
	}
	if s.plan.Gateway.Front != nil {
		return s.startManifests(ctx, at)
	}
	router := ""
	if s.Router != nil {
		router = s.Router.Addr()
	}
	c := GatewayConfig(s.plan, at, router, s.gatewayAt())
	for i, p := range s.Pools {
		if p.replicaSets == nil || !p.pool.Picker.Asking.FailOpen && p.pool.Picked() {
			continue // Envoy sends requests where the pickers say
		}
		file := filepath.Join(s.Dir, "endpoints-"+p.pool.Name+".yaml")
		c.Pools[i].EndpointsFile = file
		p.updateEnvoy = func(list []string) error { return envoy.WriteEndpoints(file, p.pool.Name, list) }
	}
	c.Admin = s.adminAt()
	if s.o.Envoy != nil {
		s.o.Envoy(&c)
	}
	var err error
	if s.Gateway, err = cluster.StartGateway(ctx, s.Binary, c, s.Dir); err != nil {
		return err
	}
	return s.Gateway.Record(s.o.Recorder, s.Origin, s.o.Log, false)
}

// Load sends the scenario's workload and returns when every request has ended.
func (s *Stack) Load(ctx context.Context) error {
	for _, p := range s.Pools {
		for _, r := range p.replicaSets {
			r.start()
			if !s.o.Keep && !s.o.Stay {
				defer r.end()
			}
		}
		defer p.incidents(ctx)()
	}
	return s.send(ctx, &s.plan.Load)
}

// send sends a load through the stack.
func (s *Stack) send(ctx context.Context, w *plan.Load) error {
	o := client.Options{Target: s.Gateway.Addr, HTTP2: w.HTTP2, Chunked: w.Chunked, Timeout: w.Timeout,
		Requests: w.Requests.Requests, Concurrency: w.Concurrency, Workload: w.Requests,
		Recorder: s.o.Recorder, Now: s.Now,
		Line: s.clients, Connections: 1 + w.Concurrency/80, Trace: s.o.ClientTrace}
	if !s.o.EPP.given() {
		o.Metadata = s.metadata
	}
	return client.Run(ctx, o)
}

// metadata returns the metadata that Windtunnel's EPP generated for a request. It returns the metadata only once.
func (s *Stack) metadata(request string) (string, bool) {
	v, ok := s.made.LoadAndDelete(request)
	if !ok {
		return "", false
	}
	return v.(string), true
}

// Stop stops everything in reverse. Requests in flight may finish until ctx ends. If Envoy had already ended, that is
// an error, and its log is kept.
func (s *Stack) Stop(ctx context.Context) error {
	errs := []error{s.gatewayEnded()}
	for _, p := range s.Pools {
		errs = append(errs, p.commandFailed())
	}
	return s.ownDir.End(errors.Join(append(errs, s.stop(ctx))...))
}

// gatewayEnded says how Envoy ended; nil while it runs.
func (s *Stack) gatewayEnded() error {
	if !s.Gateway.Ended() {
		return nil
	}
	if err := s.Gateway.Wait(); err != nil {
		return err
	}
	return &envoy.Error{Kind: envoy.StartFailed, Message: "another process stopped Envoy",
		Log: s.Gateway.LogPath()}
}

func (s *Stack) stop(ctx context.Context) error {
	s.endActs()
	var errs []error
	errs = append(errs, s.Gateway.Stop(ctx))
	if s.Router != nil {
		s.Router.Stop(ctx)
	}
	for _, p := range s.Pools {
		errs = append(errs, p.stop(ctx))
	}
	return errors.Join(errs...)
}
