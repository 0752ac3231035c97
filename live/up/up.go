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

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/internal/tlsfiles"
	"github.com/windtunnel/windtunnel/live/bbr"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

const (
	lockPort = 8000 // of a block of addresses, held while it is used
	// remembered is how many decisions a picker tells.
	remembered = 1000
	// lag is how long Envoy's workers may go on with what was in force before a change
	// that it has acknowledged: a request that one of them is about to send would meet
	// a connection that a stopped pod has closed.
	lag = 300 * time.Millisecond
	// answers is how long an Envoy that owes an answer has for the next one.
	answers = time.Second
	// drained is how long what a pod answers may take once it is no endpoint.
	drained = 30 * time.Second
)

// Options say what to bring up, and where.
type Options struct {
	// Objects are the objects to begin with.
	Objects *gateway.Set
	// Controller has only the Gateways of its classes served, as in a cluster, and
	// nothing made up that is missing; "" serves all, and makes up.
	Controller string
	// EnvoyPath names the Envoy to use; empty looks for one.
	EnvoyPath string
	// Dir is where Envoy's files go.
	Dir string
	// Host is the address of the first Gateway; the zero value is 127.0.0.1. Others
	// have those that follow.
	Host netip.Addr
	// OwnAddresses gives every Gateway an address of the run's own, so that runs at
	// once do not meet.
	OwnAddresses bool
	// Admin is Envoy's own pages' address; empty is a free port of loopback.
	Admin string
	// Sidecar reads a routing sidecar's command line and environment; nil starts none.
	Sidecar func(args []string, env func(string) (string, bool)) (sidecar.Options, error)
	// Picker reads an endpoint picker's, without its configuration; nil takes no flag.
	Picker func(args []string, env func(string) (string, bool)) (epp.StandaloneOptions, error)
	// Predictor reads the environment of a latency predictor; nil leaves predictors out.
	Predictor func(env func(string) (string, bool)) (StartPredictor, error)
	// Recorder takes the flow events of Envoy, endpoint pickers, sidecars and model servers, of pods
	// that come and go and of edits; nil
	// records nothing.
	Recorder record.Recorder
	// Origin is when the time of events began; zero is when Start was called.
	Origin time.Time
	// Trace, if not nil, has pickers and sidecars hand a traceparent of their spans on.
	Trace *tracing.IDs
	// Note is told, once each, what was taken to be meant and what has no effect.
	Note func(text string)
	// Scaling is how fast autoscalers have replicas come and go.
	Scaling Scaling
	// Tell is called with the role of each container, with what the start waits for, and with what autoscalers do; may
	// be nil. Calls may come at once.
	Tell func(what string)
	// Log hears what a person who debugs wants to know; nil is silent.
	Log *slog.Logger
}

// StartPredictor starts a latency predictor's training server and prediction servers at these addresses. It returns
// where they listen, in this order, and what ends them.
type StartPredictor func(ctx context.Context, training string, prediction []string) (at []string,
	stop func(context.Context), err error)

// Up is running manifests.
type Up struct {
	o      Options
	log    *slog.Logger
	origin time.Time
	noted  map[string]bool

	// Envoy is the gateway, Binary which it is.
	Envoy  *cluster.Gateway
	Binary envoy.Binary
	// Startup is how long it took until all was ready.
	Startup time.Duration

	applying sync.Mutex // one change at a time
	objects  *gateway.Set
	program  *gateway.Program
	pods     map[string]*pod
	starting map[string]*pod        // those of the change under way
	pickers  map[string]*poolPicker // by pickerKey
	routers  map[string]*bbr.Server // by routerKey
	certs    map[string][2][]byte
	ejected  map[string][]string // endpoints by their clusters
	scaled   map[string]*scaled  // by workloadKey
	draining sync.WaitGroup
	unscaled sync.WaitGroup // ends of scaled
	watching sync.WaitGroup
	// life ends when Stop begins, and with it every change under way; rest ends when what
	// was asked before has had its time.
	life, rest context.Context
	end, cut   context.CancelFunc
	owing      bool // a change was cut short, and Envoy may have to answer still

	services atomic.Pointer[services]

	addresses *cluster.Addresses

	mu       sync.Mutex            // guards hosts and listen
	hosts    map[string]netip.Addr // of Gateways, by namespace/name
	listen   map[string]string     // of their ports
	nextHost int
}

// InvalidError says what in the objects cannot be brought up.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

// Unwrap is why.
func (e *InvalidError) Unwrap() error { return e.Err }

// Start brings everything up. On an error nothing is left running.
func Start(ctx context.Context, o Options) (u *Up, err error) {
	u = &Up{o: o, log: cmp.Or(o.Log, discard), origin: cmp.Or(o.Origin, time.Now()), noted: map[string]bool{},
		pods: map[string]*pod{}, pickers: map[string]*poolPicker{}, routers: map[string]*bbr.Server{},
		certs: map[string][2][]byte{}, scaled: map[string]*scaled{},
		hosts: map[string]netip.Addr{}, listen: map[string]string{}}
	u.life, u.end = context.WithCancel(context.WithoutCancel(ctx))
	u.rest, u.cut = context.WithCancel(context.WithoutCancel(ctx))
	if !u.o.Host.IsValid() {
		u.o.Host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if u.o.Tell == nil {
		u.o.Tell = func(string) {}
	}
	started := u
	defer func() {
		if err != nil {
			_ = started.Stop(context.Background()) // the first error is the one to tell
		}
	}()
	if u.Binary, err = envoy.Find(ctx, envoy.FindOptions{Path: o.EnvoyPath, Log: u.log, Tell: u.o.Tell}); err != nil {
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
	if err = u.Envoy.Record(o.Recorder, u.origin, u.log, true); err != nil {
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

// Apply makes other objects those in force, while requests flow. On an error, and where ctx
// ends before, the last good state is in force; an error that Envoy has not taken it back says so.
//
// What is new is started, and known to Envoy, before a picker may choose it; what
// is gone is no picker's any more before Envoy forgets it, and stops when it has
// answered.
func (u *Up) Apply(ctx context.Context, s *gateway.Set) (err error) {
	u.applying.Lock()
	defer u.applying.Unlock()
	return u.apply(ctx, s)
}

// apply is Apply; applying is around it.
func (u *Up) apply(ctx context.Context, s *gateway.Set) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.life, cancel)()
	program := gateway.Build(s, gateway.Options{Controller: u.o.Controller, Supply: u.o.Controller == ""})
	if nothingServed(s, program) {
		return &InvalidError{errors.Join(errNoGateway, told(program.Notes))}
	}
	if program.Mistakes != nil {
		return &InvalidError{program.Mistakes}
	}
	for _, text := range Replicas(s) {
		if !u.noted[text] {
			u.o.Tell(text)
		}
		u.noted[text] = true
	}
	for _, text := range program.Notes {
		u.note(text)
	}
	if s != u.objects { // and not other replicas of them
		if err := u.check(s, program); err != nil {
			return err
		}
	}
	next := &change{u: u, s: s, program: program, pods: map[string]*pod{}, pickers: map[string]*poolPicker{},
		routers: map[string]*bbr.Server{}}
	if err := next.scale(); err != nil {
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
	if err := u.open(program); err != nil {
		return err
	}
	next.tellNewPickers()
	wide := next.configuration(next.both())
	if err := u.Envoy.Set(ctx, wide); err != nil {
		return err
	}
	next.wide = true
	next.tellPickers()
	if err := u.Envoy.Set(ctx, next.configuration(next.list())); err != nil {
		return err
	}
	gonePods, gonePickers := next.gone()
	goneRouters := next.goneRouters()
	for _, p := range next.started {
		u.lives(record.ServerStarted, p)
		u.lives(record.ServerReady, p)
	}
	for _, p := range gonePods {
		u.lives(record.ServerLeaving, p)
	}
	u.objects, u.program, u.pods, u.pickers, u.routers = s, program, next.pods, next.pickers, next.routers
	u.scales(next.rules)
	u.route()
	scaled := maps.Clone(u.scaled)
	u.retire(gonePods, gonePickers, goneRouters, func(p *pod) {
		u.lives(record.ServerGone, p)
		if x := scaled[workloadKey(p.workload)]; x != nil {
			x.gone(p)
		}
	})
	return nil
}

// retire stops what nobody asks any more once it has answered what it was asked; left hears of
// each pod that has.
func (u *Up) retire(pods []*pod, pickers []*poolPicker, routers []*bbr.Server, left func(p *pod)) {
	if len(pods)+len(pickers)+len(routers) == 0 {
		return
	}
	u.draining.Go(func() {
		ctx, cancel := context.WithTimeout(u.rest, drained)
		defer cancel()
		pause.For(ctx, lag)
		for _, x := range pickers {
			_ = x.stop(ctx) // nobody waits for it
		}
		for _, x := range routers {
			x.Stop(ctx)
		}
		for _, p := range pods {
			u.stopPod(ctx, p)
			left(p)
		}
	})
}

func told(notes []string) error {
	if len(notes) == 0 {
		return nil
	}
	return errors.New(strings.Join(notes, "\n"))
}

func portKey(g *gateway.Served, port int) string {
	return fmt.Sprintf("%s/%s/%d", g.Namespace, g.Name, port)
}

// certificate is a listener's where no Secret has one: made once.
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

// open finds an address for every port of every Gateway that has none yet. A port
// below 1024 that this process may not listen on becomes one 8,000 higher.
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

// host is the next Gateway's address.
func (u *Up) host() netip.Addr {
	if u.o.OwnAddresses && u.addresses.Own() {
		_, ip, err := u.addresses.Take()
		if err == nil {
			return ip
		}
	}
	ip := u.o.Host
	for range u.nextHost {
		ip = ip.Next()
	}
	u.nextHost++
	return ip
}

// Stop takes everything down. Requests in flight may finish until ctx ends; a change under
// way ends at once.
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
		if u.owing { // it may be unable to answer, and to end by itself
			soon, cancel := context.WithTimeout(ctx, answers)
			defer cancel()
			if _, err := u.Envoy.Active(soon); err != nil {
				ctx = soon
			}
		}
		errs = append(errs, u.Envoy.Drain(ctx), u.Envoy.Stop(ctx))
	}
	for _, key := range slices.Sorted(maps.Keys(u.pickers)) {
		errs = append(errs, u.pickers[key].stop(ctx))
	}
	for _, x := range u.routers {
		x.Stop(ctx)
	}
	for _, p := range sorted(u.pods) {
		u.stopPod(ctx, p)
	}
	u.draining.Wait()
	u.addresses.Free()
	return errors.Join(errs...)
}
