package up

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/live/modelserver/dropin"
)

// pod is one running replica of a workload.
type pod struct {
	workload  *gateway.Workload
	name      string
	namespace string
	role      gateway.Role
	replica   int // its number among the workload's
	number    int // of its address in the block
	ip        netip.Addr
	// at are the places where its ports listen, by the ports' numbers.
	at map[int]string
	// also is a port besides them where its model server answers scrapers, 0 for none.
	also  int
	model string
	// killed says that its model server does not fit into its memory: as in a cluster it is restarted again and
	// again and never ready.
	killed bool
	// blockBytes is the size of a KV block of its model server.
	blockBytes int64
	// sidecar is that of them at which the routing sidecar listens, "" without one.
	sidecar string
	// events is where its model server sends KV events, "" where it does not, or binds.
	events string
	stops  []func(context.Context)
}

// key is the same for replicas that may be taken for one another.
func podKey(w *gateway.Workload, i int) string {
	return fmt.Sprintf("%s/%s/%s/%d", w.Kind, w.Namespace, w.Name, i)
}

// same says whether a workload's pods are still what they were, so that they go
// on.
func same(a, b *gateway.Workload) bool {
	bare := func(w *gateway.Workload) []gateway.Container {
		list := slices.Clone(w.Containers)
		for i := range list {
			list[i].At = b.At
		}
		return list
	}
	return reflect.DeepEqual(bare(a), bare(b)) && reflect.DeepEqual(a.Volumes, b.Volumes)
}

// podPorts are the ports of a pod whose containers nothing here simulates: those that they
// name, and those where Services send requests, since a container need not name its ports.
func podPorts(s *gateway.Set, w *gateway.Workload) (out []int) {
	for i := range w.Containers {
		if w.Containers[i].Role() != gateway.RoleOther {
			continue
		}
		for _, x := range w.Containers[i].Ports {
			out = append(out, x.Number)
		}
	}
	for i := range s.Services {
		v := &s.Services[i]
		if v.Namespace != w.Namespace || len(v.Selector) == 0 || !v.Selector.Matches(w.Pods) {
			continue
		}
		for _, x := range v.Ports {
			if x.TargetNumber != 0 {
				out = append(out, x.TargetNumber)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// listens says whether the pod listens on all of these ports.
func (p *pod) listens(ports []int) bool {
	return !slices.ContainsFunc(ports, func(n int) bool { return p.at[n] == "" && p.also != n })
}

// startPod starts a replica, on these ports where nothing else says them, or besides. An error
// says which container is at fault, and leaves nothing behind.
func (u *Up) startPod(w *gateway.Workload, i int, ports []int) (p *pod, err error) {
	c, r := w.Serves()
	p = &pod{workload: w, replica: i, namespace: w.Namespace, name: fmt.Sprintf("%s-%d", w.Name, i), role: r,
		at: map[int]string{}}
	if p.number, p.ip, err = u.addresses.Take(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s:%d: %s %s/%s: container %s: %w", w.File, c.At.Line(), w.Kind, w.Namespace, w.Name,
				c.Name, err)
			u.stopPod(context.Background(), p)
		}
	}()
	switch r {
	case gateway.RoleServer, gateway.RoleRenderer:
		return p, u.startServer(p, c, ports)
	case gateway.RoleKVManager:
		return p, u.startManager(p, c)
	}
	var addresses []string
	for _, n := range ports {
		addresses = append(addresses, u.addresses.On(p.ip, n))
	}
	e, err := startEcho(p.namespace, p.name, addresses, u.log)
	if err != nil {
		return p, err
	}
	for k, n := range ports {
		p.at[n] = e.at[k]
	}
	p.stops = append(p.stops, e.stop)
	return p, nil
}

// startServer starts the pod's model server with its own command line. It also answers at the first of the ports
// that the command line does not name.
func (u *Up) startServer(p *pod, c *gateway.Container, ports []int) error {
	args, env, err := started(c, p)
	if err != nil {
		return err
	}
	if p.events = u.eventsOf(p.workload, c); p.events != "" {
		env[eventsEndpoint] = p.events
	}
	args = append(args, "--host", p.ip.String())
	if c.Simulator() {
		args = append(args, "--profile", string(dropin.ProfileSim))
	}
	if !u.addresses.Own() {
		args = append(args, "--port", "0")
	}
	r, err := dropin.Parse(args, env.lookup)
	if err != nil {
		return &InvalidError{err}
	}
	for _, note := range r.Notes {
		u.note(fmt.Sprintf("%s:%d: container %s: %s", p.workload.File, c.At.Line(), c.Name, note))
	}
	r.RestartOOM = true
	options, err := r.Fleet()
	if err != nil {
		return &InvalidError{err}
	}
	options.Logger, options.Origin, options.Recorder = u.log, u.origin, u.o.Recorder
	for i := range options.Servers {
		options.Servers[i].Name, options.Servers[i].PodName, options.Servers[i].PodNamespace = p.name, p.name,
			p.namespace
	}
	if why := options.Servers[0].OutOfMemory; why != nil {
		p.killed = true
		u.note(fmt.Sprintf("%s:%d: container %s: OOMKilled, again and again, so its pods are no endpoints: %v",
			p.workload.File, c.At.Line(), c.Name, why))
	}
	p.model, p.blockBytes = options.Servers[0].Models[0], options.Servers[0].Engine.BlockBytes()
	for _, port := range ports {
		if port >= r.Port && port < r.Port+len(options.Servers) {
			continue
		}
		p.also, options.Servers[0].ListenAlso = port, u.addresses.On(p.ip, port)
		break
	}
	if r.KVEvents != nil && !r.KVEvents.Connect && !u.addresses.Own() {
		u.note(fmt.Sprintf("%s:%d: container %s: no KV events: this machine has one loopback address, and pods meet "+
			"on their ports", p.workload.File, c.At.Line(), c.Name))
	} else {
		r.Publish(&options)
	}
	fleet, err := modelserver.New(options)
	if err != nil {
		return err
	}
	p.stops = append(p.stops, fleet.Stop)
	if err := fleet.Start(context.Background()); err != nil {
		return err
	}
	for i, at := range fleet.Addresses() {
		number := r.Port + i
		if !u.addresses.Own() {
			number = declared(c, i)
		}
		p.at[number] = at
	}
	return nil
}

// declared is the number that a port would have if pods had addresses of their own.
func declared(c *gateway.Container, i int) int {
	if i < len(c.Ports) {
		return c.Ports[i].Number
	}
	if v, ok := c.Flag("port"); ok {
		if n, err := strconv.Atoi(v); err == nil {
			return n + i
		}
	}
	return 8000 + i
}

// stopPod ends a pod; what it is answering may finish until ctx ends.
func (u *Up) stopPod(ctx context.Context, p *pod) {
	for _, stop := range slices.Backward(p.stops) {
		stop(ctx)
	}
	u.addresses.Return(p.number)
}

// portOf is a port's number in an address.
func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// discard is where nobody listens.
var discard = slog.New(slog.DiscardHandler)
