package up

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/bbr"
	"github.com/windtunnel/windtunnel/live/envoy"
)

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
	wide          bool // Envoy has both the new and the old state
}

// inForce is the change that has nothing to start or to stop.
func (u *Up) inForce() *change { return &change{u: u, to: u.applied, running: u.running} }

// start starts the new pods and pickers, and keeps the others.
func (c *change) start(ctx context.Context) error {
	if err := c.startPods(ctx, true); err != nil {
		return err
	}
	c.u.services.Store(&services{c.to.Objects, c.list(), nil})
	if err := c.startPickers(ctx); err != nil {
		return err
	}
	c.serve() // model servers send events to managers and pickers
	if err := c.startPods(ctx, false); err != nil {
		return err
	}
	c.serve()
	if err := c.u.writeEndpoints(c.list()); err != nil {
		return err
	}
	for _, p := range c.started.pods {
		if err := c.u.startSidecar(c.to.Objects, p); err != nil {
			return err
		}
	}
	if err := c.u.writeEndpoints(c.list()); err != nil {
		return err
	}
	return c.startRouters()
}

// serve puts the Services' endpoints in force.
func (c *change) serve() {
	c.u.services.Store(&services{c.to.Objects, c.list(), c.pickers})
	c.u.starting = c.pods
}

// startPods starts the new KV-Cache Managers, or all other new pods.
func (c *change) startPods(ctx context.Context, managers bool) error {
	other := func(p plan.Pod) bool { return (p.Role == gateway.RoleKVManager) != managers }
	var had []plan.Pod
	for _, p := range sorted(c.u.pods) {
		had = append(had, p.running())
	}
	now := slices.DeleteFunc(slices.Clone(c.to.Pods), other)
	for i := range now {
		if p := c.u.pods[now[i].Key()]; p != nil && !managers {
			now[i].Events = c.u.eventsOf(p)
		}
	}
	d := plan.Diff(slices.DeleteFunc(had, other), now)
	for _, x := range d.Keep {
		kept := *c.u.pods[x.Key()]
		kept.Pod = x
		c.pods[x.Key()] = &kept
	}
	for _, x := range d.Stop {
		c.gone.pods = append(c.gone.pods, c.u.pods[x.Key()])
	}
	for _, x := range d.Start {
		p, err := c.u.startPod(c.to.Objects, x)
		if err != nil {
			return err
		}
		c.started.pods, c.pods[x.Key()] = append(c.started.pods, p), p
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// startPickers starts the new pickers, and gives the others their configurations.
func (c *change) startPickers(ctx context.Context) error {
	d := plan.Diff(c.u.applied.Pickers, c.to.Pickers)
	for _, p := range d.Keep {
		was := c.u.pickers[p.Key()]
		c.pickers[p.Key()] = &poolPicker{p, was.server, was.may}
		if err := was.configure(p.PoolPicker); err != nil {
			return &InvalidError{err}
		}
	}
	for _, p := range d.Stop {
		c.gone.pickers = append(c.gone.pickers, c.u.pickers[p.Key()])
	}
	for _, p := range d.Start {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		x, err := c.u.startPicker(p)
		if err != nil {
			return err
		}
		c.started.pickers, c.pickers[p.Key()] = append(c.started.pickers, x), x
	}
	return nil
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
		errs = append(errs, u.writeEndpoints(old.list()))
		old.tellPickers()
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

// tellPickers gives every picker the endpoints that it may choose.
func (c *change) tellPickers() {
	for _, x := range c.pickers {
		c.tell(x, c.list())
	}
}

// tellNewPickers gives new pickers the endpoints that Envoy already knows, because Envoy may ask them before it knows
// the others.
func (c *change) tellNewPickers() {
	stay := slices.DeleteFunc(c.list(), func(p *pod) bool { return slices.Contains(c.started.pods, p) })
	for _, x := range c.started.pickers {
		c.tell(x, stay)
	}
}

func (c *change) tell(x *poolPicker, pods []*pod) {
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
	}
	for _, x := range c.to.Pickers {
		if x.Replica < x.Asked {
			p := d.Pickers[x.Backend.Key]
			p.Addresses = append(p.Addresses, c.pickers[x.Key()].server.Addr())
			d.Pickers[x.Backend.Key] = p
		}
	}
	return d
}
