// Package stack starts the rooms of a live run in order (model servers, the
// endpoint picker, Envoy), sends the workload through them, and stops them in
// reverse. It is the only package in live that knows the others.
package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/connector"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/live/client"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/live/sidecar"
	"github.com/windtunnel/windtunnel/scenario"
)

// The ports that a stack which is kept up uses, and a run's own stack does
// not: the ecosystem's for the EPP, the llm-d chart's for the gateway.
const (
	KeptGateway = "127.0.0.1:8081"
	KeptExtProc = "127.0.0.1:9002"
	KeptMetrics = "127.0.0.1:9090"
	KeptHealth  = "127.0.0.1:9003"
	KeptAdmin   = "127.0.0.1:19000" // Envoy's own pages
)

const anyPort = "127.0.0.1:0"

// Options of a stack.
type Options struct {
	Scenario *scenario.Scenario
	// Origin is when the run began; events are timed from it. Zero is now.
	Origin time.Time
	// Recorder takes every hop's events; nil records nothing.
	Recorder flow.Recorder
	// Keep uses the well-known ports where Ports says nothing else.
	Keep bool
	// Ports are those to listen on.
	Ports Ports
	// EPP is somebody else's endpoint picker; without one ours is started.
	EPP Elsewhere
	// EnvoyPath names the Envoy to use; empty looks for one.
	EnvoyPath string
	// Dir is where the run's files go; empty makes a temporary directory, which
	// is removed when the stack stops without trouble. The next run removes it
	// where the process is killed before, or when a week has passed.
	Dir string
	// Envoy changes the gateway's configuration before it starts; may be nil.
	Envoy func(*envoy.Config)
	// Plugins are the types of plug-ins that the picker has; nil is all.
	Plugins picker.Registry
	// Faults spoil requests at the model servers; may be nil.
	Faults func(server *modelserver.ServerOptions)
	// Describe prepares for a Record: requests are described well enough to be
	// played again.
	Describe bool
	// Explain is how many endpoints of a decision the record of its request
	// explains; 0 explains nothing.
	Explain int
	// Reloaded is told of every change of the picker's configuration while the
	// run goes on, and why it was refused, if it was. Nil is told nothing.
	Reloaded func(file string, err error)
	// Scraped is told how long the picker took to fetch and read a page of metrics;
	// may be nil.
	Scraped func(took time.Duration)
	// Tell is told what the start waits for, in words for people; may be nil.
	Tell func(what string)
	// Log hears what a person who debugs wants to know; nil is silent.
	Log *slog.Logger
}

// Ports are the ports of 127.0.0.1 that a stack listens on for others. 0 is a
// free one, or with Keep the well-known one.
type Ports struct{ Gateway, ExtProc, Health, Metrics, Admin int }

// at is the address for a port, whose well-known one is kept.
func (o *Options) at(port int, kept string) string {
	switch {
	case port > 0:
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	case o.Keep:
		return kept
	}
	return anyPort
}

// Stack is a running client-facing gateway with all that is behind it.
type Stack struct {
	o        Options
	pool     *scenario.Pool
	origin   time.Time
	ownDir   *runDir  // nil where Options.Dir is given
	made     sync.Map // request id → metadata that the EPP made up
	picking  *picking
	kv       *announcers
	places   *places
	command  *command // somebody else's picker that we started, or nil
	tailDone chan struct{}
	tailStop context.CancelFunc

	// Dir holds the run's configuration and logs.
	Dir string
	// Startup is how long it took until all was ready.
	Startup time.Duration
	Binary  envoy.Binary
	Gateway *envoy.Process
	// Picker is our own EPP, nil where somebody else's is used.
	Picker *epp.Server
	// Fleet is the simulated model servers, nil where somebody else's are used.
	Fleet *modelserver.Fleet
	// Sidecars are those before the decode servers of a disaggregated pool.
	Sidecars       []*sidecar.Sidecar
	sidecarOptions []sidecar.Options
	// Endpoints are the model servers' addresses, or their sidecars', and Names
	// what they are called. Servers that only prefill come last.
	Endpoints, Names []string
}

// Start brings the whole stack up. On an error nothing is left running, and
// the error says where the logs are.
func Start(ctx context.Context, o Options) (s *Stack, err error) {
	if len(o.Scenario.Pools) != 1 {
		return nil, fmt.Errorf("stack: expected one pool, the scenario has %d", len(o.Scenario.Pools))
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Tell == nil {
		o.Tell = func(string) {}
	}
	if o.Origin.IsZero() {
		o.Origin = time.Now()
	}
	fix := &o.Scenario.Ports
	o.Ports.Gateway, o.Ports.ExtProc = cmp.Or(o.Ports.Gateway, fix.Gateway), cmp.Or(o.Ports.ExtProc, fix.ExtProc)
	o.Ports.Admin = cmp.Or(o.Ports.Admin, fix.EnvoyAdmin)
	o.Ports.Health, o.Ports.Metrics = cmp.Or(o.Ports.Health, fix.Health), cmp.Or(o.Ports.Metrics, fix.Metrics)
	s = &Stack{o: o, pool: &o.Scenario.Pools[0], origin: o.Origin, Dir: o.Dir}
	began := time.Now()
	started := s // a step that returns an error has set s to nil by then
	defer func() {
		if err != nil {
			_ = started.stop(context.Background()) // the first error is the one to tell
			_ = started.ownDir.keep()              // it says where the logs are
		}
	}()
	if s.Binary, err = envoy.Find(ctx, envoy.FindOptions{Path: o.EnvoyPath, Log: o.Log, Tell: o.Tell}); err != nil {
		return nil, err
	}
	if err = checkDescriptors(o.Scenario); err != nil {
		return nil, err
	}
	if s.Dir == "" {
		if s.ownDir, err = newRunDir(os.TempDir(), o.Log); err != nil {
			return nil, err
		}
		s.Dir = s.ownDir.path
	}
	for _, step := range []func(context.Context) error{s.startKVManager, s.startServers, s.startSidecars, s.startPicker, s.awaitSubscribers, s.startGateway} {
		if err = step(ctx); err != nil {
			return nil, err
		}
	}
	s.Startup = time.Since(began)
	return s, nil
}

// checkDescriptors says whether this machine can hold as many requests as are
// in flight at once.
func checkDescriptors(s *scenario.Scenario) error {
	http1 := 0
	if s.Workload.HTTP != scenario.HTTP2 {
		http1++
	}
	if s.Pools[0].Upstream != scenario.HTTP2 {
		http1++
	}
	return envoy.CheckDescriptors(min(s.Workload.Concurrency, s.Workload.Requests), http1)
}

// Servers are the model servers' addresses, or their sidecars', those that only
// prefill apart.
func (s *Stack) Servers() (endpoints, prefill []string) {
	if s.Fleet == nil {
		return s.Endpoints, nil
	}
	return s.Endpoints[:s.pool.Replicas], s.Endpoints[s.pool.Replicas:]
}

// Now is the run's clock.
func (s *Stack) Now() machine.Time { return machine.FromDuration(time.Since(s.origin)) }

func (s *Stack) startServers(ctx context.Context) error {
	if len(s.pool.Endpoints) > 0 {
		var err error
		s.Endpoints, err = resolve(ctx, s.pool.Endpoints)
		s.Names = s.pool.Endpoints
		return err
	}
	m := &s.pool.ModelServer
	faults, err := s.o.Scenario.Faults(s.pool)
	if err != nil {
		return err
	}
	options := modelserver.Options{Seed: s.o.Scenario.Seed, Origin: s.origin, Recorder: s.o.Recorder, Logger: s.o.Log}
	if s.pool.Sidecar == scenario.RoutingSidecar || s.pool.ModelServer.KVEvents.Published() || s.scrapesPort() {
		s.findPlaces()
		options.Transfer.Profile = s.pool.Link()
		nic, err := s.pool.NIC()
		if err != nil {
			return err
		}
		options.Transfer.NIC = nic
		if s.places.notice != "" {
			s.o.Log.Warn(s.places.notice)
		}
	}
	for i := range s.pool.Servers() {
		config, err := s.o.Scenario.Engine(s.pool, i)
		if err != nil {
			return err
		}
		so := modelserver.ServerOptions{TimingHeaders: true, PromptTokensDetails: true, Body: serve.BodyLimits{Idle: s.pool.EPP.BodyIdleTimeout, Total: s.pool.EPP.BodyTimeout}, Name: s.pool.ServerName(i), Models: []string{s.pool.Model}, Engine: config,
			Prefill: &m.Prefill, TokenTime: &m.InterTokenLatency, OutputTokens: &m.OutputTokens,
			MaxBodyBytes: max(modelserver.DefaultMaxBody, int64(s.pool.EPP.MaxBodyBytes)+1<<16)}
		setHardware(s.pool, &so)
		so.Listen = fixed(s.o.Scenario.Ports.Servers, i, "")
		if s.places != nil {
			so.Listen, so.ListenAlso, so.SideChannel = s.places.pods[i].server, s.places.pods[i].also, s.places.pods[i].side
			if so.KVRole = connector.RoleConsumer; s.pool.Prefills(i) {
				so.KVRole = connector.RoleProducer
			}
		}
		s.publish(&so, i)
		if len(faults.Rules) > 0 {
			so.Faults = func(request string) lifecycle.Fault { return faults.Of(request, i) }
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
	if err := fleet.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.Fleet = fleet
	s.Endpoints = fleet.Addresses()
	for _, server := range fleet.Servers() {
		s.Names = append(s.Names, server.Name())
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

func (s *Stack) startPicker(ctx context.Context) error {
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
	p := &s.o.Ports
	o := epp.Options{Address: s.o.at(p.ExtProc, KeptExtProc), HealthAddress: s.o.at(p.Health, KeptHealth), MetricsAddress: s.o.at(p.Metrics, KeptMetrics), Now: s.Now, Log: s.o.Log}
	var err error
	if s.picking, err = s.newPicking(&o); err != nil {
		return err
	}
	s.Picker, err = epp.Start(o)
	if err != nil && strings.Contains(err.Error(), "address already in use") {
		return &envoy.Error{Kind: envoy.PortTaken, Message: err.Error() + "; stop what listens there, or choose other ports (--port, --grpc-port, --grpc-health-port, --metrics-port, --admin-port)", Err: err}
	}
	return err
}

// responseModes are Envoy's modes of a scenario's.
var responseModes = map[scenario.ResponseBodyMode]envoy.Mode{scenario.ResponseFullDuplex: envoy.FullDuplex, scenario.ResponseStreamed: envoy.Streamed,
	scenario.ResponseBuffered: envoy.Buffered, scenario.ResponseUnseen: envoy.HeadersOnly}

// GatewayConfig is the gateway's configuration for a scenario, with the gateway,
// the EPP and the model servers at these addresses.
func GatewayConfig(sc *scenario.Scenario, eppAddress string, endpoints []string, listen string) envoy.Config {
	p := &sc.Pools[0]
	pool := envoy.Pool{Name: p.Name, Picker: envoy.Processor{Addresses: []string{eppAddress}}, FailureMode: envoy.FailureMode(p.FailureMode), Endpoints: endpoints}
	if p.Upstream == scenario.HTTP2 {
		pool.Protocol = envoy.HTTP2
	}
	if p.EPP.BodyMode == scenario.Buffered {
		pool.Picker.Mode = envoy.Buffered
	}
	pool.Picker.Responses, pool.Picker.MessageTimeout = responseModes[p.EPP.Responses()], p.EPP.ProcessingTimeout
	if p.FailureMode == scenario.FailOpen {
		pool.HealthPath = "/health"
	}
	return envoy.Config{Listen: listen, Pools: []envoy.Pool{pool}, Limits: envoy.Limits{BodyBytes: int(p.EPP.MaxBodyBytes), BodyTime: p.EPP.BodyTimeout, Hold: p.EPP.HoldLimit}}
}

func (s *Stack) startGateway(ctx context.Context) error {
	c := GatewayConfig(s.o.Scenario, s.ExtProc(), s.Endpoints, s.o.at(s.o.Ports.Gateway, KeptGateway))
	c.Admin = s.o.at(s.o.Ports.Admin, KeptAdmin)
	if s.o.Envoy != nil {
		s.o.Envoy(&c)
	}
	p, err := envoy.Start(ctx, s.Binary, c, filepath.Join(s.Dir, "envoy"))
	if err != nil {
		return err
	}
	s.Gateway = p
	return s.followAccessLog()
}

// Load sends the scenario's workload and returns when every request has ended.
func (s *Stack) Load(ctx context.Context) error {
	w := &s.o.Scenario.Workload
	o := client.Options{Target: s.Gateway.Addr, HTTP2: w.HTTP == scenario.HTTP2, Chunked: w.ChunkedUpload, Timeout: w.Timeout,
		Requests: w.Requests, Concurrency: w.Concurrency, Workload: s.o.Scenario.Generator(), Recorder: s.o.Recorder, Now: s.Now,
		Connections: 1 + w.Concurrency/80}
	if s.Picker != nil {
		o.Metadata = s.metadata
	}
	defer s.incidents(ctx)()
	return client.Run(ctx, o)
}

// metadata is what our EPP made up for a request; it is asked for once.
func (s *Stack) metadata(request string) (string, bool) {
	v, ok := s.made.LoadAndDelete(request)
	if !ok {
		return "", false
	}
	return v.(string), true
}

// Stop takes everything down in reverse. Requests in flight may finish until
// ctx ends. That Envoy had ended before is an error, and its log is kept.
func (s *Stack) Stop(ctx context.Context) error {
	if err := errors.Join(s.gatewayEnded(), s.command.failed(), s.stop(ctx)); err != nil {
		return errors.Join(err, s.ownDir.keep())
	}
	return s.ownDir.remove()
}

// gatewayEnded says how Envoy ended; nil while it runs.
func (s *Stack) gatewayEnded() error {
	select {
	case <-s.Gateway.Done():
	default:
		return nil
	}
	if err := s.Gateway.Wait(); err != nil {
		return err
	}
	return &envoy.Error{Kind: envoy.StartFailed, Message: "Envoy was stopped by somebody else", Log: s.Gateway.LogPath()}
}

func (s *Stack) stop(ctx context.Context) error {
	var errs []error
	if s.Gateway != nil {
		errs = append(errs, s.Gateway.Stop(ctx))
		s.endAccessLog()
	}
	if s.Picker != nil {
		errs = append(errs, s.Picker.Stop(ctx))
	}
	s.command.stop(ctx)
	if s.picking != nil {
		s.picking.stop()
	}
	errs = append(errs, s.stopSidecars(ctx))
	if s.Fleet != nil {
		s.Fleet.Stop(ctx)
	}
	s.stopKVManager()
	if s.places != nil {
		s.places.free()
	}
	return errors.Join(errs...)
}
