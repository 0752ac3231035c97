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
	"github.com/windtunnel/windtunnel/live/bbr"
	"github.com/windtunnel/windtunnel/live/envoy"
)

// change holds the pods, pickers and routers that one Apply is about to start and to stop.
type change struct {
	u       *Up
	s       *gateway.Set
	program *gateway.Program
	pods    map[string]*pod
	pickers map[string]*poolPicker
	routers map[string]*bbr.Server
	rules   map[string]*rule // of workloads with an autoscaler
	// started, opened and routing are the new pods, pickers and routers.
	started []*pod
	opened  []*poolPicker
	routing []*bbr.Server
	// reloaded holds the earlier configurations of pickers with a new configuration.
	reloaded map[*poolPicker]string
	wide     bool // Envoy has both the new and the old state
}

// start starts the new pods and pickers, and keeps the others.
func (c *change) start(ctx context.Context) error {
	if err := c.startPods(ctx, true); err != nil {
		return err
	}
	c.u.services.Store(&services{c.s, c.list(), nil})
	if err := c.startPickers(ctx); err != nil {
		return err
	}
	c.u.services.Store(&services{c.s, c.list(), c.pickers}) // model servers send events to managers and pickers
	if err := c.startPods(ctx, false); err != nil {
		return err
	}
	c.u.services.Store(&services{c.s, c.list(), c.pickers})
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
	return c.startRouters()
}

// startPickers starts the new pickers, and reloads the others.
func (c *change) startPickers(ctx context.Context) error {
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
	return nil
}

// startPods starts the new KV-Cache Managers, or all other new pods.
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
			ports = podPorts(c.s, w)
		case r == gateway.RoleServer && w.With(gateway.RoleSidecar) == nil && c.u.addresses.Own():
			ports = c.scraped(w)
		}
		for _, k := range c.numbers(w) {
			key := podKey(w, k)
			if p := c.u.pods[key]; p != nil && same(p.workload, w) && p.listens(ports) &&
				p.events == c.events(p, container) {
				kept := *p
				kept.workload = w
				c.pods[key] = &kept
				continue
			}
			p, err := c.u.startPod(c.s, w, k, ports)
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

// events returns the address to which a pod's model server is to send its KV events now.
func (c *change) events(p *pod, x *gateway.Container) string {
	if x.Role() != gateway.RoleServer {
		return ""
	}
	r, err := c.u.parseServer(c.s, p, x)
	if err != nil {
		return "" // the start of a pod that sends events returns the error
	}
	return c.u.eventsOf(p, x, r)
}

// picker starts a replica of a pool's picker, or keeps the running one.
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
		x.workload, _ = c.s.PickerOf(b)
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

// undo puts the last good state in force again and stops the new parts. Its error lists what it could not undo, and
// says so if Envoy has not taken the last good state in time.
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
		u.services.Store(&services{u.objects, old.list(), u.pickers})
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

// list returns the pods after the change that can become ready, sorted by name.
func (c *change) list() []*pod {
	return slices.DeleteFunc(sorted(c.pods), func(p *pod) bool { return p.killed })
}

// both returns those pods and the ones that the change removes.
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

// tellPickers gives every picker the endpoints that it may choose.
func (c *change) tellPickers() {
	for _, b := range c.program.Backends {
		for _, x := range pickersOf(c.pickers, b) {
			c.tell(x, b, c.list())
		}
	}
}

// tellNewPickers gives new pickers the endpoints that Envoy already knows, because Envoy may ask them before it knows
// the others.
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

// configuration returns Envoy's configuration with these pods.
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
