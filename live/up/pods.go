package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/files"
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
	// beside are the places where the pod's render servers and latency predictor listen, by their ports' numbers.
	beside map[int]string
	// also is a port besides them where its model server answers scrapers, 0 for none.
	also  int
	model string
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

// podPorts are the ports that a container listens on of which nothing else is known:
// those that it names, and those where Services send requests, since a container
// need not name its ports.
func podPorts(s *gateway.Set, w *gateway.Workload, c *gateway.Container) (out []int) {
	for _, x := range c.Ports {
		out = append(out, x.Number)
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
	return !slices.ContainsFunc(ports, func(n int) bool { return p.place(n) == "" && p.also != n })
}

// place is where the pod listens on a port, "" where it does not.
func (p *pod) place(port int) string { return cmp.Or(p.at[port], p.beside[port]) }

// startPod starts a replica, on these ports where nothing else says them, or besides. An error
// says which container is at fault, and leaves nothing behind.
func (u *Up) startPod(s *gateway.Set, w *gateway.Workload, i int, ports []int) (p *pod, err error) {
	c, r := w.Serves()
	p = &pod{workload: w, replica: i, namespace: w.Namespace, name: w.PodName(i), role: r,
		at: map[int]string{}, beside: map[int]string{}}
	if p.number, p.ip, err = u.addresses.Take(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", containerAt(w, c), err)
			u.stopPod(context.Background(), p)
		}
	}()
	switch r {
	case gateway.RoleServer:
		err = u.startServer(s, p, c, ports)
	case gateway.RoleKVManager:
		err = u.startManager(p, c)
	case gateway.RoleOther, gateway.RoleProxy:
		err = u.startStandIn(p, ports)
	}
	for k := range w.Containers {
		if x := &w.Containers[k]; err == nil && x.Role() == gateway.RoleRenderer {
			c, err = x, u.startRenderer(s, p, x)
		}
	}
	if x := predictorOf(w); err == nil && x != nil {
		c, err = x, u.startPredictor(p, x)
	}
	return p, err
}

// startStandIn starts a server that answers with what it was asked.
func (u *Up) startStandIn(p *pod, ports []int) error {
	var addresses []string
	for _, n := range ports {
		addresses = append(addresses, u.addresses.On(p.ip, n))
	}
	e, err := startEcho(p.namespace, p.name, addresses, u.log)
	if err != nil {
		return err
	}
	for k, n := range ports {
		p.at[n] = e.at[k]
	}
	p.stops = append(p.stops, e.stop)
	return nil
}

// parseServer reads the command line of a model server or render server.
func (u *Up) parseServer(s *gateway.Set, p *pod, c *gateway.Container) (*dropin.Result, error) {
	args, env, err := started(c, p)
	if err != nil {
		return nil, err
	}
	args = append(args, "--host", p.ip.String())
	if c.Simulator() {
		args = append(args, "--profile", string(dropin.ProfileSim))
	}
	r, err := dropin.ParseIn(args, env.lookup, func(path string, most int64) ([]byte, string, error) {
		text, from, found := s.Mounted(p.workload, c, path)
		if found && int64(len(text)) <= most {
			return []byte(text), from, nil
		}
		raw, err := files.Read(path, most)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w, and no ConfigMap that is mounted has it; expected a volume with a ConfigMap among "+
				"the objects", err)
		}
		return raw, path, err
	})
	if err != nil {
		return nil, &InvalidError{err}
	}
	return r, nil
}

// readServer reads the command line of a model server or render server as options of its servers.
func (u *Up) readServer(s *gateway.Set, p *pod, c *gateway.Container) (*dropin.Result, modelserver.Options, error) {
	var o modelserver.Options
	r, err := u.parseServer(s, p, c)
	if err != nil {
		return nil, o, err
	}
	for _, note := range r.Notes {
		u.note(containerAt(p.workload, c) + ": " + note)
	}
	if len(r.Ignored) > 0 {
		u.note(containerAt(p.workload, c) + ": flags without effect: " + strings.Join(r.Ignored, ", "))
	}
	if o, err = r.Fleet(); err != nil {
		return nil, o, &InvalidError{err}
	}
	o.Logger, o.Origin, o.Recorder = u.log, u.origin, u.o.Recorder
	for i := range o.Servers {
		x := &o.Servers[i]
		x.Name, x.PodName, x.PodNamespace = p.name, p.name, p.namespace
		x.Listen = u.addresses.On(p.ip, r.Port+i)
	}
	return r, o, nil
}

// startServer starts the pod's model server with its own command line. It also answers at the first of the ports
// that the command line does not name.
func (u *Up) startServer(s *gateway.Set, p *pod, c *gateway.Container, ports []int) error {
	r, options, err := u.readServer(s, p, c)
	if err != nil {
		return err
	}
	if p.events = u.eventsOf(p, c, r); p.events != "" {
		r.KVEvents.Endpoint = p.events
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
		u.note(containerAt(p.workload, c) + ": no KV events: this machine has one loopback address, and pods meet on " +
			"their ports")
	} else {
		r.Publish(&options)
	}
	return p.serve(r.Port, options, p.at)
}

// startRenderer starts a render server of the pod. It publishes nothing and has no flow events.
func (u *Up) startRenderer(s *gateway.Set, p *pod, c *gateway.Container) error {
	r, options, err := u.readServer(s, p, c)
	if err != nil {
		return err
	}
	options.Recorder = nil
	return p.serve(r.Port, options, p.beside)
}

// serve starts servers, and notes where each listens by the number of its port, the first of which is given.
func (p *pod) serve(port int, o modelserver.Options, at map[int]string) error {
	fleet, err := modelserver.New(o)
	if err != nil {
		return err
	}
	p.stops = append(p.stops, fleet.Stop)
	if err := fleet.Start(context.Background()); err != nil {
		return err
	}
	for i, address := range fleet.Addresses() {
		at[port+i] = address
	}
	return nil
}

// flagsOf is what a container's program is started with, without the program, and without empty arguments that are no
// flag's value.
func flagsOf(c *gateway.Container, p *pod) (args []string, env environ, err error) {
	line, env, err := started(c, p)
	for i, arg := range line {
		value := i > 0 && strings.HasPrefix(line[i-1], "-") && !strings.Contains(line[i-1], "=")
		if i == 0 && !strings.HasPrefix(arg, "-") || arg == "" && !value {
			continue
		}
		args = append(args, arg)
	}
	return args, env, err
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
