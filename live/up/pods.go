package up

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/live/modelserver/dropin"
)

type processes = cluster.Pod

// program is a program of a pod that has been read.
type program struct {
	plan.Program
	start func() error
}

// pod is a pod of a workload, with what its containers' command lines say.
type pod struct {
	plan.Pod
	*processes
	programs []program
	// also is an additional port where its model server answers scrapers, or 0.
	also  int
	model string
	// killed means that its model server does not fit into its memory. As in a cluster, it is restarted again and again
	// and never becomes ready.
	killed bool
	// blockBytes is the size of a KV block of its model server.
	blockBytes int64
	// sends is the address in its command line to which its model server sends KV events. It is "" if the server sends
	// none, or binds.
	sends string
	// allows is the pool of its sidecar.
	allows poolName
}

// running returns the pod with all ports on which it listens.
func (p *pod) running() plan.Pod {
	out := p.Pod
	out.Ports = append(slices.AppendSeq(slices.Collect(maps.Keys(p.At)), maps.Keys(p.Beside)), p.also)
	return out
}

// readPod reads the command lines and environments of a pod's containers. The error names every container at fault.
func (c *change) readPod(x plan.Pod) (p *pod, err error) {
	p = &pod{Pod: x}
	u, s := c.u, c.to.Objects
	if p.processes, err = u.addresses.NewPod(&u.Run, x.Workload.Namespace, x.Name()); err != nil {
		return p, err
	}
	var errs []error
	for _, x := range x.Programs {
		var start func() error
		var err error
		switch x.Role {
		case gateway.RoleServer, gateway.RoleRenderer:
			start, err = u.readServer(s, p, x.Container)
		case gateway.RoleKVManager:
			start, err = u.readManager(p, x.Container)
		case gateway.RolePredictor:
			start, err = u.readPredictor(p, x)
		case gateway.RoleSidecar:
			if errs != nil || u.o.Sidecar == nil {
				continue // without a decode server it has no target
			}
			start, err = c.readSidecar(p, x.Container)
		default:
			start = func() error { return u.startStandIn(p) }
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Workload.Where(x.Container), err))
		}
		p.programs = append(p.programs, program{x, start})
	}
	return p, errors.Join(errs...)
}

// start starts the pod's sidecar, or all its other programs.
func (p *pod) start(sidecar bool) error {
	for _, x := range p.programs {
		if (x.Role == gateway.RoleSidecar) == sidecar {
			if err := x.start(); err != nil {
				return fmt.Errorf("%s: %w", p.Workload.Where(x.Container), err)
			}
		}
	}
	return nil
}

// readServer reads the command line of a model server or render server.
//
// A model server also answers at the first of the pod's ports that the command line does not name. A render server
// publishes nothing and has no flow events.
func (u *Up) readServer(s *gateway.Set, p *pod, c *gateway.Container) (start func() error, err error) {
	x, err := c.Process(p.here())
	if err != nil {
		return nil, err
	}
	where := p.Workload.Where(c)
	if i := slices.Index(x.Args, "--"); i >= 0 && slices.Contains(x.Args[:i], "modelserver") { // windtunnel's own
		x.Args = x.Args[i+1:]
	}
	args := append(x.Args, "--host", p.IP.String())
	if c.Simulator() {
		args = append(args, "--profile", string(dropin.ProfileSim))
	}
	if version := hardware.ImageVersion(c.Image); version != "" {
		args = append(args, "--vllm-version", version)
	}
	r, err := dropin.ParseIn(args, lookup(x.Env), func(path string, most int64) ([]byte, string, error) {
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
		return nil, err
	}
	for _, note := range r.Notes {
		u.note(where + ": " + note)
	}
	if len(r.Ignored) > 0 {
		u.note(where + ": flags without effect: " + strings.Join(r.Ignored, ", "))
	}
	r.RestartOOM = true
	o, err := r.Fleet()
	if err != nil {
		return nil, err
	}
	o.Logger, o.Origin = u.LogOf(p.PodNamespace, p.PodName, c.Name), u.Origin
	for i := range o.Servers {
		x := &o.Servers[i]
		x.Name, x.PodName, x.PodNamespace, x.Listen = p.PodName, p.PodName, p.PodNamespace, p.On(r.Port+i)
	}
	at, renders := p.At, c.Role() == gateway.RoleRenderer
	if renders {
		at, o.Servers[0].OutOfMemory = p.Beside, nil // it loads no weights
	} else {
		o.Recorder = u.Recorder
		u.readModelServer(p, where, r, &o)
	}
	fleet, err := modelserver.New(o)
	if err != nil {
		return nil, err
	}
	p.Stops(func(ctx context.Context) error { fleet.Stop(ctx); return nil })
	for i := range o.Servers {
		at[r.Port+i] = o.Servers[i].Listen
	}
	return func() error {
		if !renders && p.sends != "" {
			p.Events = u.eventsOf(p)
			r.KVEvents.Endpoint = p.Events
		}
		err := fleet.Start(context.Background())
		for i, address := range fleet.Addresses() { // the pod's own, whatever the server advertises
			_, port, _ := net.SplitHostPort(address)
			at[r.Port+i] = net.JoinHostPort(p.IP.String(), port)
		}
		return err
	}, nil
}

// readModelServer reads what a pod's model server has and its render servers have not.
func (u *Up) readModelServer(p *pod, where string, r *dropin.Result, o *modelserver.Options) {
	first := &o.Servers[0]
	if why := first.OutOfMemory; why != nil {
		p.killed = true
		u.note(fmt.Sprintf("%s: OOMKilled, again and again, so its pods are no endpoints: %v", where, why))
	}
	p.model, p.blockBytes = first.Models[0], first.Engine.BlockBytes()
	for _, port := range p.Ports {
		if port < r.Port || port >= r.Port+len(o.Servers) {
			p.also, first.ListenAlso = port, p.On(port)
			break
		}
	}
	switch {
	case r.KVEvents == nil:
	case r.KVEvents.Connect:
		p.sends = r.KVEvents.Endpoint
		r.Publish(o)
	case u.addresses.Own():
		r.Publish(o)
	default:
		u.note(where + ": no KV events: this machine has one loopback address, and pods meet on their ports")
	}
}

// here returns the pod as its containers' environments show it.
func (p *pod) here() gateway.Place {
	return gateway.Place{Name: p.PodName, Namespace: p.PodNamespace, IP: p.IP.String()}
}

// lookup returns os.LookupEnv for a container's environment.
func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}
}

// flagsOf returns the arguments that a container's program starts with, without the program itself. It leaves out empty
// arguments, except for those that are a flag's value.
func flagsOf(c *gateway.Container, at gateway.Place) (args []string, env func(string) (string, bool), err error) {
	x, err := c.Process(at)
	for i, arg := range x.Args {
		value := i > 0 && strings.HasPrefix(x.Args[i-1], "-") && !strings.Contains(x.Args[i-1], "=")
		if i == 0 && !strings.HasPrefix(arg, "-") || arg == "" && !value {
			continue
		}
		args = append(args, arg)
	}
	return args, lookup(x.Env), err
}

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// discard drops all log lines.
var discard = slog.New(slog.DiscardHandler)
