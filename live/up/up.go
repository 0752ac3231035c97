package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/internal/tlsfiles"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

const (
	lockPort = 8000 // locks a block of addresses; held while the block is in use
	// lag is how long Envoy's workers may still use the old configuration after Envoy has acknowledged a new one.
	// Without the wait, a worker's next request could meet a connection that a stopped pod has closed.
	lag = 300 * time.Millisecond
	// answers limits the wait for an Envoy that has not answered an earlier change.
	answers = time.Second
	// drained limits the time for a pod's remaining answers once it is no longer an endpoint.
	drained = 30 * time.Second
)

// Options configure what Start brings up, and where.
type Options struct {
	// Objects are the objects to start with.
	Objects *gateway.Set
	// Controller limits the run to Gateways of this controller's classes, as in a cluster, and supplies no missing
	// objects. With "", the run serves all Gateways and supplies missing objects.
	Controller string
	// PickerTLS makes Envoy speak TLS to endpoint pickers that run elsewhere, whose certificates it does not check.
	PickerTLS bool
	// EnvoyPath is the path of the Envoy to use; empty searches for one.
	EnvoyPath string
	// Dir is the directory for Envoy's files.
	Dir string
	// Host is the address of the first Gateway; the zero value is 127.0.0.1. The other Gateways get the following
	// addresses, and of an unspecified address (0.0.0.0) all get this one.
	Host netip.Addr
	// OwnAddresses gives every Gateway an address that belongs to this run alone, so that concurrent runs do not
	// collide.
	OwnAddresses bool
	// Admin is the address of Envoy's admin pages; empty is a free port of loopback.
	Admin string
	// Sidecar parses a routing sidecar's command line and environment; nil starts no sidecars.
	Sidecar func(args []string, env func(string) (string, bool)) (sidecar.Options, error)
	// Picker parses an endpoint picker's command line and environment, without its configuration; nil accepts no flags.
	Picker func(args []string, env func(string) (string, bool)) (epp.StandaloneOptions, error)
	// Predictor reads the environment of a latency predictor; nil leaves predictors out. Trainer returns a predictor's
	// Fitter, nil if it learns nothing, and a function that ends it.
	Predictor func(env func(string) (string, bool)) (predictor.Options, error)
	Trainer   func(ctx context.Context) (fit cluster.Fitter, stop func())
	// Recorder receives the flow events of Envoy, endpoint pickers, sidecars and model servers, and the events of pods
	// that come and go and of edits; nil records nothing.
	Recorder record.Recorder
	// Origin is the time from which events count; zero is the time of Start's call.
	Origin time.Time
	// Trace, if not nil, makes pickers and sidecars send the traceparents of their spans.
	Trace *tracing.IDs
	// Note is called once for each assumption about the objects, and for each part of them that has no effect.
	Note func(text string)
	// Scaling sets how fast autoscalers add and remove replicas.
	Scaling Scaling
	// Report is called with the role of each container, with the events that the start waits for, and with the
	// autoscalers' decisions. It may be nil. Calls may be concurrent.
	Report func(what string)
	// Log is for debugging; nil is silent.
	Log *slog.Logger
	// Logs, if not nil, returns the log of one container of a pod, which gets its lines instead of Log.
	Logs func(namespace, pod, container string) *slog.Logger
}

// Up is a running set of manifests.
type Up struct {
	o Options
	cluster.Run
	noted map[string]bool

	// Envoy is the gateway. Binary is its program.
	Envoy  *cluster.Gateway
	Binary envoy.Binary
	// Startup is the time that Start took until everything was ready.
	Startup time.Duration

	applying sync.Mutex // one change at a time
	applied  *plan.Cluster
	running  // what executes it
	certs    map[string][2][]byte
	ejected  map[string][]string // endpoints by their clusters' names
	scaled   map[string]*scaled  // by their workloads' keys
	draining sync.WaitGroup
	unscaled sync.WaitGroup // counts the autoscalers that are stopping
	watching sync.WaitGroup
	// life ends when Stop begins, and every change in progress with it. rest ends when the time for earlier requests is
	// over.
	life, rest context.Context
	end, cut   context.CancelFunc
	owing      bool // a change was interrupted, and Envoy may not have answered it yet

	services atomic.Pointer[services]

	addresses *cluster.Addresses

	listeners
}

// listeners are the addresses of Gateways.
type listeners struct {
	mu       sync.Mutex            // guards hosts and listen
	hosts    map[string]netip.Addr // of Gateways by namespace/name
	listen   map[string]string     // of the Gateways' ports
	nextHost int
}

// InvalidError reports parts of the objects that cannot be brought up.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *InvalidError) Unwrap() error { return e.Err }

// Start brings everything up. After an error nothing is left running.
func Start(ctx context.Context, o Options) (u *Up, err error) {
	u = &Up{o: o, noted: map[string]bool{},
		Run: cluster.Run{Origin: cmp.Or(o.Origin, time.Now()), Recorder: o.Recorder, Trace: o.Trace,
			Log: cmp.Or(o.Log, discard), Logs: o.Logs},
		applied: new(plan.Cluster), running: newRunning(),
		certs: map[string][2][]byte{}, scaled: map[string]*scaled{},
		listeners: listeners{hosts: map[string]netip.Addr{}, listen: map[string]string{}}}
	u.life, u.end = context.WithCancel(context.WithoutCancel(ctx))
	u.rest, u.cut = context.WithCancel(context.WithoutCancel(ctx))
	if !u.o.Host.IsValid() {
		u.o.Host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if u.o.Report == nil {
		u.o.Report = func(string) {}
	}
	started := u
	defer func() {
		if err != nil {
			_ = started.Stop(context.Background()) // the caller returns the first error
		}
	}()
	if u.Binary, err = envoy.Find(ctx,
		envoy.FindOptions{Path: o.EnvoyPath, Log: u.Log, Report: u.o.Report}); err != nil {
		return nil, err
	}
	began := time.Now()
	if u.addresses, err = cluster.NewAddresses(lockPort); err != nil {
		u.note(fmt.Sprintf("pods share 127.0.0.1 on ports of their own, and not on the manifests': %v", err))
	}
	c := envoy.Config{Admin: cmp.Or(o.Admin, cluster.AnyPort)}
	if u.Envoy, err = cluster.StartGateway(ctx, u.Binary, c, o.Dir); err != nil {
		return nil, err
	}
	if err = u.Apply(ctx, o.Objects); err != nil {
		return nil, err
	}
	if err = u.Envoy.Record(u.Recorder, u.Origin, u.Log, true); err != nil {
		return nil, err
	}
	u.watching.Go(func() { u.followEjections(u.life) })
	u.Startup = time.Since(began)
	return u, nil
}

func (u *Up) note(text string) {
	if u.noted[text] || u.o.Note == nil {
		return
	}
	u.noted[text] = true
	u.o.Note(text)
}

// Apply puts other objects in force while requests flow. If it fails, or ctx ends first, the last good state is in
// force; the error says so if Envoy has not taken that state back.
//
// Apply starts the new parts, and Envoy knows them, before a picker may choose them. Pickers no longer choose the old
// parts before Envoy forgets them. An old part stops once it has answered its requests.
func (u *Up) Apply(ctx context.Context, s *gateway.Set) (err error) {
	u.applying.Lock()
	defer u.applying.Unlock()
	return u.apply(ctx, s)
}

// apply is Apply with applying locked.
func (u *Up) apply(ctx context.Context, s *gateway.Set) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.life, cancel)()
	to := plan.Compile(s, plan.Options{Ready: u.ready(), OwnAddresses: u.addresses.Own(),
		Options: gateway.Options{Controller: u.o.Controller, Supply: u.o.Controller == ""}})
	if err := refused(to); err != nil {
		if !to.Serves() && len(to.Program.Notes) > 0 {
			err = &InvalidError{fmt.Errorf("%w\n%s", err, strings.Join(to.Program.Notes, "\n"))}
		}
		return err
	}
	for _, text := range to.Taken() {
		if !u.noted[text] {
			u.o.Report(text)
		}
		u.noted[text] = true
	}
	for _, text := range to.Program.Notes {
		u.note(text)
	}
	next := u.newChange(to)
	if err := next.read(); err != nil {
		next.drop()
		return err
	}
	defer func() {
		if u.owing = err != nil && ctx.Err() != nil; err != nil {
			err = errors.Join(err, next.undo(ctx))
		}
	}()
	if err := next.start(ctx); err != nil {
		return err
	}
	if err := u.open(to.Program); err != nil {
		return err
	}
	next.applyToNewPickers()
	wide := next.configuration(next.both())
	if err := u.Envoy.Set(ctx, wide); err != nil {
		return err
	}
	next.wide = true
	next.applyToPickers()
	if err := u.Envoy.Set(ctx, next.configuration(next.list())); err != nil {
		return err
	}
	for _, p := range next.started.pods {
		u.lives(record.ServerStarted, p)
		u.lives(record.ServerReady, p)
	}
	for _, p := range next.gone.pods {
		u.lives(record.ServerLeaving, p)
	}
	u.applied, u.running = to, next.running
	u.scales(to.Scaled)
	u.route()
	scaled := maps.Clone(u.scaled)
	u.retire(next.gone, func(p *pod) {
		u.lives(record.ServerGone, p)
		if x := scaled[p.Workload.Key()]; x != nil {
			x.gone(p)
		}
	})
	return nil
}

// followEjections withholds endpoints that Envoy has ejected from the pickers, and returns them once Envoy does, until
// ctx ends.
func (u *Up) followEjections(ctx context.Context) {
	u.Envoy.FollowEjected(ctx, u.Log, func() bool {
		u.applying.Lock()
		defer u.applying.Unlock()
		return u.applied.Program != nil && u.applied.Program.Ejects()
	}, func(now map[string][]string) {
		u.applying.Lock()
		defer u.applying.Unlock()
		u.ejected = now
		u.inForce().applyToPickers()
	})
}

// lives records that a model server comes or goes, once for each of its addresses.
func (u *Up) lives(step record.Step, p *pod) {
	if p.model == "" {
		return
	}
	for _, at := range p.At {
		u.Happens(record.Event{Hop: record.Server, Step: step, Endpoint: at,
			Details: record.Details{record.D("name", p.PodName), record.D("deployment", p.Workload.Name)}})
	}
}

// retire stops parts that no client uses any more, once they have answered their requests. It calls left for each pod
// that has stopped.
func (u *Up) retire(x parts, left func(p *pod)) {
	if len(x.pods)+len(x.pickers)+len(x.routers) == 0 {
		return
	}
	u.draining.Go(func() {
		ctx, cancel := context.WithTimeout(u.rest, drained)
		defer cancel()
		pause.For(ctx, lag)
		for _, p := range x.pickers {
			_ = p.server.Stop(ctx) // no caller waits for it
		}
		for _, r := range x.routers {
			r.Stop(ctx)
		}
		for _, p := range x.pods {
			_ = p.Stop(ctx) // no client uses it any more
			left(p)
		}
	})
}

func portKey(g *gateway.Served, port int) string {
	return fmt.Sprintf("%s/%s/%d", g.Namespace, g.Name, port)
}

// certificate returns the certificate of a listener without a Secret. It creates the certificate at the first call.
func (u *Up) certificate(g *gateway.Served, s *gateway.Secure) (cert, key []byte, err error) {
	name := s.Table.Name + " " + s.Hostname
	if have, ok := u.certs[name]; ok {
		return have[0], have[1], nil
	}
	u.mu.Lock()
	host := u.hosts[g.Namespace+"/"+g.Name]
	u.mu.Unlock()
	cert, key, err = tlsfiles.SelfSignedPEM([]string{host.String(), s.Hostname})
	u.certs[name] = [2][]byte{cert, key}
	return cert, key, err
}

// open chooses an address for each Gateway port that has none yet. For a port below 1024 that this process may not use,
// it chooses the port 8,000 higher.
func (u *Up) open(p *gateway.Program) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, g := range p.Gateways {
		name := g.Namespace + "/" + g.Name
		host, ok := u.hosts[name]
		if !ok {
			host = u.host()
			u.hosts[name] = host
		}
		for _, port := range g.Ports {
			key := portKey(g, port.Number)
			if u.listen[key] != "" {
				continue
			}
			at, err := cluster.FreePort(netip.AddrPortFrom(host, uint16(port.Number)),
				"say --listen with another address")
			if err != nil {
				return fmt.Errorf("%s:%d: Gateway %s: port %d: %w", g.File, g.Line, name, port.Number, err)
			}
			u.listen[key] = at
		}
	}
	return nil
}

// host returns the next Gateway's address.
func (u *Up) host() netip.Addr {
	if u.o.OwnAddresses && u.addresses.Own() {
		_, ip, err := u.addresses.Take()
		if err == nil {
			return ip
		}
	}
	ip := u.o.Host
	if ip.IsUnspecified() {
		return ip
	}
	for range u.nextHost {
		ip = ip.Next()
	}
	u.nextHost++
	return ip
}

// Stop stops everything. Requests in flight may finish until ctx ends. A change in progress is interrupted at once.
func (u *Up) Stop(ctx context.Context) error {
	u.end()
	u.watching.Wait()
	u.unscale()
	u.applying.Lock()
	defer u.applying.Unlock()
	defer u.cut()
	defer context.AfterFunc(ctx, u.cut)()
	var errs []error
	if u.Envoy != nil {
		if u.owing { // Envoy may be unable to answer, and to end by itself
			soon, cancel := context.WithTimeout(ctx, answers)
			defer cancel()
			if _, err := u.Envoy.Active(soon); err != nil {
				ctx = soon
			}
		}
		errs = append(errs, u.Envoy.Drain(ctx), u.Envoy.Stop(ctx))
	}
	for _, key := range slices.Sorted(maps.Keys(u.pickers)) {
		errs = append(errs, u.pickers[key].server.Stop(ctx))
	}
	for _, x := range u.routers {
		x.Stop(ctx)
	}
	for _, p := range sorted(u.pods) {
		_ = p.Stop(ctx) // requests that are left are cut
	}
	u.draining.Wait()
	u.addresses.Free()
	return errors.Join(errs...)
}
