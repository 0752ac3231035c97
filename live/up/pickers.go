package up

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	core "github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// poolPicker is a replica of a pool's endpoint picker that runs.
type poolPicker struct {
	plan.PickerPod
	server *epp.Standalone
	may    *atomic.Pointer[objects.Selection] // the endpoints that it may choose
}

// pickerOptions returns the options from the container's own flags. The listening addresses, the pool's name and the
// configuration come from the manifests.
func (u *Up) pickerOptions(x *plan.PoolPicker) (o epp.StandaloneOptions, err error) {
	if x.Container != nil && u.o.Picker != nil {
		args, env, err := flagsOf(x.Container, gateway.Place{Name: x.Workload.PodName(0),
			Namespace: x.Workload.Namespace, IP: "127.0.0.1"})
		if err == nil {
			o, err = u.o.Picker(without(args, "config-file", "config-text"), env)
		}
		if err != nil {
			return o, fmt.Errorf("%s: %w", x.Workload.Where(x.Container), err)
		}
	}
	o.PoolName, o.Namespace, o.Objects, o.Selector, o.TargetPorts = x.Backend.Name, x.Backend.Namespace, "", nil, nil
	o.Address, o.HealthAddress, o.MetricsAddress = cluster.AnyPort, cluster.AnyPort, cluster.AnyPort
	o.Secure, o.CertPath = false, ""
	u.Picker(&o)
	k := &o.Picking
	k.Explain, k.ExplainHeaders = record.Explained(u.Recorder), true
	k.Hosts = u.address(x.Backend.Namespace, x.Workload)
	o.Config, o.ConfigName, o.ClientHeaders = x.Config, x.File, x.ClientLimits()
	return o, nil
}

// without removes flags and their values from a command line.
func without(args []string, flags ...string) (out []string) {
	for i := 0; i < len(args); i++ {
		name, _, has := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if strings.HasPrefix(args[i], "-") && slices.Contains(flags, strings.ReplaceAll(name, "_", "-")) {
			if !has {
				i++
			}
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// startPicker starts a replica of a pool's picker.
func (u *Up) startPicker(p plan.PickerPod, o epp.StandaloneOptions) (_ *poolPicker, err error) {
	x := &poolPicker{PickerPod: p, may: new(atomic.Pointer[objects.Selection])}
	x.may.Store(new(objects.Selection))
	o.Log = u.LogOf(p.Place())
	o.Picking.Log = o.Log
	o.Picking.KV.Sockets = &kvevents.Sockets{Local: true}
	o.Fill = func(k *epp.Picking) error { k.Apply(*x.may.Load(), false); return nil }
	if x.server, err = epp.StartStandalone(o); err != nil {
		return nil, &InvalidError{err}
	}
	return x, nil
}

// configure gives the picker another configuration.
func (x *poolPicker) configure(p *plan.PoolPicker) error {
	if err := epp.Reload([]*epp.Standalone{x.server}, p.File, p.Config); err != nil {
		return &InvalidError{err}
	}
	return nil
}

// endpointsOf returns a pool's endpoints: the ports of its pods that run here, and the external ones in the objects.
func (u *Up) endpointsOf(s *gateway.Set, p *objects.Pool, pods []*pod) objects.Selection {
	out := s.Select(p.Namespace, p.Name)
	var here []*core.Endpoint
	for _, x := range pods {
		w := x.Workload
		if w.Namespace != p.Namespace || len(p.Selector) == 0 || !p.Selector.Matches(w.Pods) {
			continue
		}
		served := false
		for i, port := range p.Ports {
			at, ok := x.At[port]
			if !ok {
				continue
			}
			served = true
			e := cluster.NewEndpoint(p.Namespace, core.RankName(x.PodName, i), at, p.Roles(w.Pods))
			e.Rank = i
			here = append(here, e)
		}
		if !served {
			u.note(fmt.Sprintf("%s:%d: %s %s/%s: its pods listen on %s and not on port %v of InferencePool %s; they "+
				"are no endpoints of it",
				w.File, w.Line, w.Kind, w.Namespace, w.Name, portsOf(x), p.Ports, p.Name))
		}
	}
	if len(here) > 0 && len(p.Targets) > 0 {
		out.Endpoints, out.Announced = nil, nil // a status written by an earlier controller does not count here
	}
	out.Endpoints = append(here, out.Endpoints...)
	return out
}

func portsOf(x *pod) string {
	numbers := slices.Sorted(maps.Keys(x.At))
	if len(numbers) == 0 {
		return "no port"
	}
	return strings.Trim(fmt.Sprint(numbers), "[]")
}

// elsewhere returns the addresses of a pool's endpoint picker that does not run here, by its Service.
func elsewhere(s *gateway.Set, b *gateway.Backend) []string {
	if b.Picker == nil {
		return nil
	}
	service := s.Service(b.Picker.Namespace, b.Picker.Name)
	if service == nil {
		return nil
	}
	port, ok := service.Port(b.Picker.Port)
	if !ok && len(service.Ports) > 0 && b.Picker.Port == 0 {
		port, ok = service.Ports[0], true
	}
	if !ok {
		return nil
	}
	return serviceEndpoints(s, &gateway.Backend{Namespace: b.Picker.Namespace, Service: service, Port: port}, nil)
}

// serviceEndpoints returns the addresses behind a Service's port: the pods that run here, and the external ones in the
// objects. A cluster's EndpointSlices name all of these.
func serviceEndpoints(s *gateway.Set, b *gateway.Backend, pods []*pod) []string {
	out := s.Sliced(b.Service, b.Port)
	sliced := len(out) > 0
	for i := range s.Pods {
		if p := &s.Pods[i]; !sliced && p.Namespace == b.Namespace && p.Ready && p.IP != "" && b.Port.TargetNumber > 0 &&
			len(b.Service.Selector) > 0 && b.Service.Selector.Matches(p.Labels) {
			out = append(out, net.JoinHostPort(p.IP, strconv.Itoa(b.Port.TargetNumber)))
		}
	}
	for _, x := range pods {
		if x.Workload.Namespace != b.Namespace || len(b.Service.Selector) == 0 ||
			!b.Service.Selector.Matches(x.Workload.Pods) {
			continue
		}
		number := b.Port.TargetNumber
		if b.Port.TargetName != "" {
			number, _ = x.Workload.Port(b.Port.TargetName)
		}
		if at := x.Place(number); at != "" {
			out = append(out, at)
		}
	}
	return out
}
