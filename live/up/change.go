package up

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/bbr"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/epp"
)

// RouterLimits limit the request bodies of a body-based router. The real router has no limit.
var RouterLimits = stream.Config{MaxBodyBytes: 32 << 20, BodyIdle: 60 * machine.Second, BodyTotal: 300 * machine.Second}

// nowhere is an address that refuses connections.
const nowhere = "127.0.0.1:1"

// running holds the pods, pickers and routers that execute a Cluster, by their keys there.
type running struct {
	pods    map[string]*pod
	pickers map[string]*poolPicker
	routers map[string]*bbr.Server
}

func newRunning() running {
	return running{map[string]*pod{}, map[string]*poolPicker{}, map[string]*bbr.Server{}}
}

// parts are some of what runs.
type parts struct {
	pods    []*pod
	pickers []*poolPicker
	routers []*bbr.Server
}

// change has the processes that one Apply starts and stops.
type change struct {
	u  *Up
	to *plan.Cluster
	running
	started, gone parts
	options       map[*plan.PoolPicker]epp.StandaloneOptions // of the pools' pickers
	wide          bool                                       // Envoy has both the new and the old state
}

func (u *Up) newChange(to *plan.Cluster) *change {
	return &change{u: u, to: to, running: newRunning(), options: map[*plan.PoolPicker]epp.StandaloneOptions{}}
}

// inForce is the change that has nothing to start or to stop.
func (u *Up) inForce() *change { return &change{u: u, to: u.applied, running: u.running} }

// diff returns what becomes of the pods whose model servers are to send their KV events to these addresses.
func (c *change) diff(events func(p *pod) string) plan.Change[plan.Pod] {
	var had []plan.Pod
	for _, p := range sorted(c.u.pods) {
		had = append(had, p.running())
	}
	now := slices.Clone(c.to.Pods)
	for i := range now {
		if p := c.u.pods[now[i].Key()]; p != nil {
			now[i].Events = events(p)
		}
	}
	return plan.Diff(had, now)
}

// read reads every command line, environment and configuration that the change starts a program with, and starts
// nothing. Its error, an *InvalidError, lists all mistakes, each with its container.
func (c *change) read() error {
	var errs []error
	for _, x := range c.diff(func(p *pod) string { return p.Events }).Start {
		_, err := c.new(x)
		errs = append(errs, err)
	}
	for _, x := range c.to.Pools {
		if x.Container == nil && x.Replicas == 0 {
			continue // its picker runs elsewhere
		}
		o, err := c.u.pickerOptions(x)
		if err == nil {
			_, err = epp.BuildPicker(&o.PickerOptions)
		}
		c.options[x], errs = o, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return &InvalidError{err}
	}
	return nil
}

// new returns a pod that the change starts. It reads the pod once.
func (c *change) new(x plan.Pod) (p *pod, err error) {
	at := slices.IndexFunc(c.started.pods, func(p *pod) bool { return p.Key() == x.Key() })
	if at >= 0 {
		return c.started.pods[at], nil
	}
	if p, err = c.readPod(x); p.processes != nil {
		c.started.pods = append(c.started.pods, p)
	}
	return p, err
}

// drop gives up a change that has only been read.
func (c *change) drop() {
	for _, p := range c.started.pods {
		_ = p.Stop(context.Background()) // nothing of it runs
	}
}

// start starts the new pods and pickers, and keeps the others.
func (c *change) start(ctx context.Context) error {
	if err := c.startPods(ctx, c.diff(func(p *pod) string { return p.Events }), true); err != nil {
		return err
	}
	c.u.services.Store(&services{c.to.Objects, c.list(), nil})
	if err := c.startPickers(ctx); err != nil {
		return err
	}
	c.serve() // model servers send events to managers and pickers
	if err := c.startPods(ctx, c.diff(c.u.eventsOf), false); err != nil {
		return err
	}
	if err := c.writeEndpoints(); err != nil {
		return err
	}
	for _, p := range c.started.pods {
		if err := p.start(true); err != nil {
			return err
		}
	}
	if err := c.writeEndpoints(); err != nil {
		return err
	}
	c.serve() // pickers may look these pods up from now on, so no address of theirs changes any more
	return c.startRouters(ctx)
}

// serve puts the Services' endpoints in force.
func (c *change) serve() { c.u.services.Store(&services{c.to.Objects, c.list(), c.pickers}) }

// carry keeps, stops and starts processes by their keys: was has those that run, and now gets those that run then.
func carry[P interface{ Key() string }, X any](ctx context.Context, d plan.Change[P], was, now map[string]X,
	keep func(P, X) (X, error), start func(P) (X, error)) (started, gone []X, err error) {
	for _, p := range d.Keep {
		if now[p.Key()], err = keep(p, was[p.Key()]); err != nil {
			return nil, nil, err
		}
	}
	for _, p := range d.Stop {
		gone = append(gone, was[p.Key()])
	}
	for _, p := range d.Start {
		x, err := start(p)
		if err != nil {
			return started, gone, err
		}
		started, now[p.Key()] = append(started, x), x
		if err := ctx.Err(); err != nil {
			return started, gone, err
		}
	}
	return started, gone, nil
}

// startPods carries out what becomes of KV-Cache Managers, or of all other pods.
func (c *change) startPods(ctx context.Context, d plan.Change[plan.Pod], managers bool) error {
	for _, list := range []*[]plan.Pod{&d.Start, &d.Keep, &d.Stop} {
		*list = slices.DeleteFunc(*list,
			func(x plan.Pod) bool { return (x.Role == gateway.RoleKVManager) != managers })
	}
	_, gone, err := carry(ctx, d, c.u.pods, c.pods, func(x plan.Pod, was *pod) (*pod, error) {
		kept := *was
		kept.Pod = x
		return &kept, nil
	}, func(x plan.Pod) (*pod, error) {
		p, err := c.new(x)
		if err == nil {
			err = p.start(false)
		}
		return p, err
	})
	c.gone.pods = append(c.gone.pods, gone...)
	return err
}

// startPickers starts the new pickers, and gives the others their configurations.
func (c *change) startPickers(ctx context.Context) (err error) {
	c.started.pickers, c.gone.pickers, err = carry(ctx, plan.Diff(c.u.applied.Pickers, c.to.Pickers), c.u.pickers,
		c.pickers, func(p plan.PickerPod, was *poolPicker) (*poolPicker, error) {
			return &poolPicker{p, was.server, was.may}, was.configure(p.PoolPicker)
		}, func(p plan.PickerPod) (*poolPicker, error) { return c.u.startPicker(p, c.options[p.PoolPicker]) })
	return err
}

// startRouters starts the new body-based routers and keeps the others.
func (c *change) startRouters(ctx context.Context) (err error) {
	c.started.routers, c.gone.routers, err = carry(ctx, plan.Diff(c.u.applied.Routers, c.to.Routers), c.u.routers,
		c.routers, func(_ plan.RouterPod, was *bbr.Server) (*bbr.Server, error) { return was, nil },
		func(r plan.RouterPod) (*bbr.Server, error) {
			return cluster.StartRouter(r.Router, RouterLimits, c.u.Now)
		})
	return err
}

// undo puts the last good state in force again and stops the new parts. Its error lists what it could not undo, and
// says so if Envoy has not taken the last good state in time.
func (c *change) undo(ctx context.Context) error {
	var errs []error
	if u := c.u; u.applied.Program != nil {
		for _, x := range u.pickers {
			if err := x.configure(x.PoolPicker); err != nil {
				errs = append(errs, fmt.Errorf("picker %s: its last good configuration: %w", x.Name(), err))
			}
		}
		old := u.inForce()
		old.serve()
		errs = append(errs, old.writeEndpoints())
		old.applyToPickers()
		if c.wide {
			errs = append(errs, u.Envoy.Back(ctx, old.configuration(old.list())))
		}
	}
	c.u.retire(c.started, func(*pod) {})
	return errors.Join(errs...)
}

// list returns the pods after the change that can become ready, sorted by name.
func (c *change) list() []*pod {
	return slices.DeleteFunc(sorted(c.pods), func(p *pod) bool { return p.killed })
}

// both returns those pods and the ones that the change removes.
func (c *change) both() []*pod { return append(c.list(), c.gone.pods...) }

func sorted(pods map[string]*pod) (out []*pod) {
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		out = append(out, pods[key])
	}
	return out
}

// applyToPickers gives every picker the endpoints that it may choose.
func (c *change) applyToPickers() {
	for _, x := range c.pickers {
		c.applyEndpoints(x, c.list())
	}
}

// applyToNewPickers gives new pickers the endpoints that Envoy already knows, because Envoy may ask them before it
// knows the others.
func (c *change) applyToNewPickers() {
	stay := slices.DeleteFunc(c.list(), func(p *pod) bool { return slices.Contains(c.started.pods, p) })
	for _, x := range c.started.pickers {
		c.applyEndpoints(x, stay)
	}
}

func (c *change) applyEndpoints(x *poolPicker, pods []*pod) {
	s := c.u.endpointsOf(c.to.Objects, x.Backend.Pool, pods)
	s.Endpoints = upstream.Usable(s.Endpoints, c.u.ejected[x.Backend.Key], (*picker.Endpoint).HostPort)
	x.may.Store(&s)
	x.server.Picking().Apply(s, false)
}

// configuration returns Envoy's configuration with these pods.
func (c *change) configuration(pods []*pod) envoy.Dynamic {
	d := envoy.Dynamic{Program: c.to.Program, Pickers: map[string]envoy.Processor{}, Routers: c.processors(),
		Endpoints: map[string][]string{}, Certificate: c.u.certificate,
		AccessLog: c.u.Envoy.AccessLog(),
		Listen: func(g *gateway.Served, port int) string {
			c.u.mu.Lock()
			defer c.u.mu.Unlock()
			return c.u.listen[portKey(g, port)]
		}}
	for _, b := range c.to.Program.Backends {
		if b.Pool == nil {
			d.Endpoints[b.Key] = serviceEndpoints(c.to.Objects, b, pods)
			continue
		}
		for _, e := range c.u.endpointsOf(c.to.Objects, b.Pool, pods).Endpoints {
			d.Endpoints[b.Key] = append(d.Endpoints[b.Key], e.HostPort())
		}
		if at := elsewhere(c.to.Objects, b); len(at) > 0 && !b.Supplied {
			d.Pickers[b.Key] = envoy.Processor{Addresses: at, TLS: c.u.o.PickerTLS}
		}
	}
	for _, x := range c.to.Pickers {
		if x.Replica < x.Asked {
			p := d.Pickers[x.Backend.Key]
			at := c.pickers[x.Key()].server.Addr()
			if x.Cut {
				at = nowhere
			}
			p.Addresses = append(p.Addresses, at)
			d.Pickers[x.Backend.Key] = p
		}
	}
	return d
}

// processors returns the body-based routers as ext_proc servers for Envoy.
func (c *change) processors() map[string]envoy.Processor {
	out := map[string]envoy.Processor{}
	for _, r := range c.to.Routers {
		p := out[r.BodyRouter.Key]
		p.Addresses = append(p.Addresses, c.routers[r.Key()].Addr())
		out[r.BodyRouter.Key] = p
	}
	return out
}

// route gives the body-based routers the routes of the objects in force. Envoy already has those routes.
func (u *Up) route() {
	for _, r := range u.applied.Routers {
		u.routers[r.Key()].Route(r.Router)
	}
}
