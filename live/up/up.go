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

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/tracing"
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
	// Sidecar reads a routing sidecar's command line and environment.
	Sidecar func(args []string, env func(string) (string, bool)) (sidecar.Options, error)
	// Picker reads an endpoint picker's, without its configuration; nil takes no flag.
	Picker func(args []string, env func(string) (string, bool)) (epp.StandaloneOptions, error)
	// Recorder takes the flow events of Envoy, endpoint pickers, sidecars and model servers, of pods
	// that come and go and of edits; nil
	// records nothing.
	Recorder flow.Recorder
	// Origin is when the time of events began; zero is when Start was called.
	Origin time.Time
	// Trace, if not nil, has pickers and sidecars hand a traceparent of their spans on.
	Trace *tracing.IDs
	// Note is told, once each, what was taken to be meant and what has no effect.
	Note func(text string)
	// Scaling is how fast autoscalers have replicas come and go.
	Scaling Scaling
	// Tell is told what the start waits for, and what autoscalers do; may be nil. Calls may come at once.
	Tell func(what string)
	// Log hears what a person who debugs wants to know; nil is silent.
	Log *slog.Logger
}

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
	if len(program.Gateways) == 0 {
		return &InvalidError{errors.Join(errNoGateway, told(program.Notes))}
	}
	if program.Mistakes != nil {
		return &InvalidError{program.Mistakes}
	}
	for _, text := range program.Notes {
		u.note(text)
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
		u.lives(flow.ServerStarted, p)
		u.lives(flow.ServerReady, p)
	}
	for _, p := range gonePods {
		u.lives(flow.ServerLeaving, p)
	}
	u.objects, u.program, u.pods, u.pickers, u.routers = s, program, next.pods, next.pickers, next.routers
	u.scales(next.rules)
	u.route()
	scaled := maps.Clone(u.scaled)
	u.retire(gonePods, gonePickers, goneRouters, func(p *pod) {
		u.lives(flow.ServerGone, p)
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

// change is what one Apply is about to put in place.
type change struct {
	u       *Up
	s       *gateway.Set
	program *gateway.Program
	pods    map[string]*pod
	pickers map[string]*poolPicker
	routers map[string]*bbr.Server
	rules   map[string]*rule // of workloads that are scaled
	// started, opened and routing are what was not there before.
	started []*pod
	opened  []*poolPicker
	routing []*bbr.Server
	// reloaded have another configuration, and before it had.
	reloaded map[*poolPicker]string
	wide     bool // Envoy has what is new besides what was there
}

// start starts the pods and pickers that are new, and keeps those that stay.
func (c *change) start(ctx context.Context) error {
	for _, managers := range []bool{true, false} { // model servers go to the managers that are there
		if err := c.startPods(ctx, managers); err != nil {
			return err
		}
		c.u.services.Store(&services{c.s, c.list()})
	}
	c.u.starting = c.pods
	if err := c.u.writeEndpoints(c.list()); err != nil {
		return err
	}
	for _, p := range c.started {
		if err := c.u.startSidecar(c.s, p); err != nil {
			return err
		}
	}
	if err := c.u.writeEndpoints(c.list()); err != nil {
		return err
	}
	c.reloaded = map[*poolPicker]string{}
	for _, b := range c.program.Backends {
		if b.Pool == nil {
			continue
		}
		all, _ := c.s.PickerReplicas(b)
		for i := range all {
			if err := c.picker(ctx, b, i); err != nil {
				return err
			}
		}
	}
	return c.startRouters()
}

// startPods starts the KV-Cache Managers that are new, or all other pods.
func (c *change) startPods(ctx context.Context, managers bool) error {
	for i := range c.s.Workloads {
		w := &c.s.Workloads[i]
		container, r := w.Serves()
		if container == nil || (r == gateway.RoleKVManager) != managers {
			continue
		}
		var ports []int
		switch {
		case r == gateway.RoleOther:
			ports = podPorts(c.s, w, container)
		case r == gateway.RoleServer && w.With(gateway.RoleSidecar) == nil && c.u.addresses.Own():
			ports = c.scraped(w)
		}
		for _, k := range c.numbers(w) {
			key := podKey(w, k)
			if p := c.u.pods[key]; p != nil && same(p.workload, w) && p.listens(ports) &&
				p.events == c.u.eventsOf(w, container) {
				kept := *p
				kept.workload = w
				c.pods[key] = &kept
				continue
			}
			p, err := c.u.startPod(w, k, ports)
			if err != nil {
				return err
			}
			c.started = append(c.started, p)
			c.pods[key] = p
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// picker starts a replica of a pool's picker, or has the one that is there go on.
func (c *change) picker(ctx context.Context, b *gateway.Backend, i int) (err error) {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	x := c.u.pickers[pickerKey(b, i)]
	if x == nil || x.line != pickerLine(c.s, b) {
		if x, err = c.u.startPicker(c.s, b, i); err != nil {
			return err
		}
		c.opened = append(c.opened, x)
	} else {
		was := x.config
		if err := x.reload(c.u, c.s, b); err != nil {
			return err
		}
		if x.config != was {
			c.reloaded[x] = was
		}
	}
	c.pickers[pickerKey(b, i)] = x
	return nil
}

// undo has the last good state in force again, and ends what was started. Its error is what
// could not be undone, or that Envoy has not taken the last good state in time.
func (c *change) undo(ctx context.Context) error {
	var errs []error
	for x, was := range c.reloaded {
		if err := x.server.Reload([]byte(was)); err != nil {
			errs = append(errs, fmt.Errorf("picker %s: its last good configuration: %w", x.name, err))
			continue
		}
		x.config = was
	}
	if u := c.u; u.program != nil {
		old := change{u: u, s: u.objects, program: u.program, pods: u.pods, pickers: u.pickers, routers: u.routers}
		u.services.Store(&services{u.objects, old.list()})
		u.starting = u.pods
		errs = append(errs, u.writeEndpoints(old.list()))
		old.tellPickers()
		if c.wide {
			errs = append(errs, u.Envoy.Back(ctx, old.configuration(old.list())))
		}
	}
	c.u.retire(c.started, c.opened, c.routing, func(*pod) {})
	return errors.Join(errs...)
}

// list are the pods that there are to be, by name.
func (c *change) list() []*pod { return sorted(c.pods) }

// both are these and those that will be gone.
func (c *change) both() []*pod {
	gone, _ := c.gone()
	return append(c.list(), gone...)
}

func sorted(pods map[string]*pod) (out []*pod) {
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		out = append(out, pods[key])
	}
	return out
}

func (c *change) gone() (pods []*pod, pickers []*poolPicker) {
	for _, key := range slices.Sorted(maps.Keys(c.u.pods)) {
		if now := c.pods[key]; now == nil || now.number != c.u.pods[key].number {
			pods = append(pods, c.u.pods[key])
		}
	}
	for key, x := range c.u.pickers {
		if c.pickers[key] != x {
			pickers = append(pickers, x)
		}
	}
	return pods, pickers
}

// tellPickers gives every picker the endpoints that it may choose from.
func (c *change) tellPickers() {
	for _, b := range c.program.Backends {
		for _, x := range pickersOf(c.pickers, b) {
			c.tell(x, b, c.list())
		}
	}
}

// tellNewPickers gives pickers that are new the endpoints that Envoy knows already:
// it may ask them before it knows the others.
func (c *change) tellNewPickers() {
	stay := slices.DeleteFunc(c.list(), func(p *pod) bool { return slices.Contains(c.started, p) })
	for _, b := range c.program.Backends {
		for _, x := range pickersOf(c.pickers, b) {
			if slices.Contains(c.opened, x) {
				c.tell(x, b, stay)
			}
		}
	}
}

func (c *change) tell(x *poolPicker, b *gateway.Backend, pods []*pod) {
	s := c.u.endpointsOf(c.s, b.Pool, pods)
	s.Endpoints = upstream.Usable(s.Endpoints, c.u.ejected[b.Key], (*picker.Endpoint).HostPort)
	x.server.Picking().Apply(s, false)
}

// configuration is Envoy's with these pods.
func (c *change) configuration(pods []*pod) envoy.Dynamic {
	d := envoy.Dynamic{Program: c.program, Pickers: map[string]envoy.Processor{}, Routers: c.processors(),
		Endpoints: map[string][]string{}, Certificate: c.u.certificate,
		AccessLog: c.u.Envoy.AccessLog(),
		Listen: func(g *gateway.Served, port int) string {
			c.u.mu.Lock()
			defer c.u.mu.Unlock()
			return c.u.listen[portKey(g, port)]
		}}
	for _, b := range c.program.Backends {
		if b.Pool == nil {
			d.Endpoints[b.Key] = serviceEndpoints(c.s, b, pods)
			continue
		}
		for _, e := range c.u.endpointsOf(c.s, b.Pool, pods).Endpoints {
			d.Endpoints[b.Key] = append(d.Endpoints[b.Key], e.HostPort())
		}
		var p envoy.Processor
		_, asked := c.s.PickerReplicas(b)
		for _, x := range pickersOf(c.pickers, b)[:asked] {
			p.Addresses = append(p.Addresses, x.server.Addr())
		}
		d.Pickers[b.Key] = p
	}
	return d
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
