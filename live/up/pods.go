package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/live/modelserver/dropin"
)

// pod is a pod that runs.
type pod struct {
	plan.Pod
	number int // number of its address in the block of addresses
	ip     netip.Addr
	// at holds the listening addresses of its ports, by the ports' numbers.
	at map[int]string
	// beside holds the listening addresses of the pod's render servers and latency predictor, by their ports' numbers.
	beside map[int]string
	// also is an additional port where its model server answers scrapers, or 0.
	also  int
	model string
	// killed means that its model server does not fit into its memory. As in a cluster, it is restarted again and again
	// and never becomes ready.
	killed bool
	// blockBytes is the size of a KV block of its model server.
	blockBytes int64
	// sidecar is the one of these addresses where the routing sidecar listens, or "".
	sidecar string
	// sends is the address in its command line to which its model server sends KV events. It is "" if the server sends
	// none, or binds.
	sends string
	stops []func(context.Context)
}

// running returns the pod with all ports on which it listens.
func (p *pod) running() plan.Pod {
	out := p.Pod
	out.Ports = append(slices.AppendSeq(slices.Collect(maps.Keys(p.at)), maps.Keys(p.beside)), p.also)
	return out
}

// place returns the pod's listening address for a port, or "".
func (p *pod) place(port int) string { return cmp.Or(p.at[port], p.beside[port]) }

// startPod starts a pod. An error names the container at fault; after an error nothing is left running.
func (u *Up) startPod(s *gateway.Set, x plan.Pod) (p *pod, err error) {
	w, c := x.Workload, x.Container
	p = &pod{Pod: x, at: map[int]string{}, beside: map[int]string{}}
	if p.number, p.ip, err = u.addresses.Take(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", w.Where(c), err)
			u.stopPod(context.Background(), p)
		}
	}()
	switch x.Role {
	case gateway.RoleServer:
		err = u.startServer(s, p)
	case gateway.RoleKVManager:
		err = u.startManager(p, c)
	case gateway.RoleOther, gateway.RoleProxy:
		err = u.startStandIn(p)
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

// startStandIn starts a server that echoes each request.
func (u *Up) startStandIn(p *pod) error {
	var addresses []string
	for _, n := range p.Ports {
		addresses = append(addresses, u.addresses.On(p.ip, n))
	}
	e, err := startEcho(p.Workload.Namespace, p.Name(), addresses, u.log)
	if err != nil {
		return err
	}
	for k, n := range p.Ports {
		p.at[n] = e.at[k]
	}
	p.stops = append(p.stops, e.stop)
	return nil
}

// readServer returns the command line of a model server or render server, and its servers' options.
func (u *Up) readServer(s *gateway.Set, p *pod, c *gateway.Container) (*dropin.Result, modelserver.Options, error) {
	var o modelserver.Options
	args, env, err := started(c, p)
	if err != nil {
		return nil, o, err
	}
	args = append(args, "--host", p.ip.String())
	if c.Simulator() {
		args = append(args, "--profile", string(dropin.ProfileSim))
	}
	if version := hardware.ImageVersion(c.Image); version != "" {
		args = append(args, "--vllm-version", version)
	}
	r, err := dropin.ParseIn(args, env.lookup, func(path string, most int64) ([]byte, string, error) {
		text, from, found := s.Mounted(p.Workload, c, path)
		if found && int64(len(text)) <= most {
			return []byte(text), from, nil
		}
		raw, err := files.Read(path, most)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w, and no mounted ConfigMap contains it; expected a volume with a ConfigMap among "+
				"the objects", err)
		}
		return raw, path, err
	})
	if err != nil {
		return nil, o, &InvalidError{err}
	}
	for _, note := range r.Notes {
		u.note(p.Workload.Where(c) + ": " + note)
	}
	if len(r.Ignored) > 0 {
		u.note(p.Workload.Where(c) + ": flags without effect: " + strings.Join(r.Ignored, ", "))
	}
	r.RestartOOM = true
	if o, err = r.Fleet(); err != nil {
		return nil, o, &InvalidError{err}
	}
	o.Logger, o.Origin, o.Recorder = u.log, u.origin, u.o.Recorder
	for i := range o.Servers {
		x := &o.Servers[i]
		x.Name, x.PodName, x.PodNamespace = p.Name(), p.Name(), p.Workload.Namespace
		x.Listen = u.addresses.On(p.ip, r.Port+i)
		if c.Role() == gateway.RoleRenderer {
			x.OutOfMemory = nil // a render server loads no weights
		}
	}
	if why := o.Servers[0].OutOfMemory; why != nil {
		p.killed = true
		u.note(fmt.Sprintf("%s: OOMKilled, again and again, so its pods are no endpoints: %v",
			p.Workload.Where(c), why))
	}
	return r, o, nil
}

// startServer starts the pod's model server with its own command line. The server also answers at the first of the
// pod's ports that the command line does not name.
func (u *Up) startServer(s *gateway.Set, p *pod) error {
	c := p.Container
	r, options, err := u.readServer(s, p, c)
	if err != nil {
		return err
	}
	if r.KVEvents != nil && r.KVEvents.Connect {
		p.sends = r.KVEvents.Endpoint
	}
	if p.Events = u.eventsOf(p); p.Events != "" {
		r.KVEvents.Endpoint = p.Events
	}
	p.model, p.blockBytes = options.Servers[0].Models[0], options.Servers[0].Engine.BlockBytes()
	for _, port := range p.Ports {
		if port >= r.Port && port < r.Port+len(options.Servers) {
			continue
		}
		p.also, options.Servers[0].ListenAlso = port, u.addresses.On(p.ip, port)
		break
	}
	if r.KVEvents != nil && !r.KVEvents.Connect && !u.addresses.Own() {
		u.note(p.Workload.Where(c) + ": no KV events: this machine has one loopback address, and pods meet on " +
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

// serve starts servers and adds their listening addresses to at. The first server's port number is port; the others'
// follow it.
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

// flagsOf returns the arguments that a container's program starts with, without the program itself. It leaves out empty
// arguments, except for those that are a flag's value.
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

// stopPod stops a pod. Its requests may finish until ctx ends.
func (u *Up) stopPod(ctx context.Context, p *pod) {
	for _, stop := range slices.Backward(p.stops) {
		stop(ctx)
	}
	u.addresses.Return(p.number)
}

// portOf returns the port in an address.
func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// discard drops all log lines.
var discard = slog.New(slog.DiscardHandler)
