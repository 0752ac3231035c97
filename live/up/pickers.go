package up

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/epp"
)

// poolPicker is one replica of a pool's endpoint picker.
type poolPicker struct {
	name     string            // its pod's name
	workload *gateway.Workload // nil if it is in no manifest
	server   *epp.Standalone
	config   string
	line     string // its container's command line
}

func pickerLine(s *gateway.Set, b *gateway.Backend) string {
	line := clientLimits(b)
	if _, c := s.PickerOf(b); c != nil {
		line += " " + strings.Join(c.Line(), " ")
	}
	return line
}

// clientLimits returns the parameters of the pool's client-headers plug-in: the strictest limits of the routes to the
// pool.
func clientLimits(b *gateway.Backend) string {
	return fmt.Sprintf(`{"maxTimeout": "%s", "maxRetries": %d}`, time.Duration(b.MaxTimeout), b.MaxRetries)
}

// pickerKey returns the key of a replica of a pool's picker.
func pickerKey(b *gateway.Backend, i int) string {
	return fmt.Sprintf("%s/%s/%d", b.Namespace, b.Name, i)
}

// pickersOf returns the running replicas of a pool's picker.
func pickersOf(all map[string]*poolPicker, b *gateway.Backend) (out []*poolPicker) {
	for i := 0; b.Pool != nil && all[pickerKey(b, i)] != nil; i++ {
		out = append(out, all[pickerKey(b, i)])
	}
	return out
}

// pickerOptions returns the options from the container's own flags. The listening addresses, the pool's name and the
// configuration come from the manifests.
func (u *Up) pickerOptions(s *gateway.Set, b *gateway.Backend) (o epp.StandaloneOptions, err error) {
	w, c := s.PickerOf(b)
	if c != nil && u.o.Picker != nil {
		at := containerAt(w, c)
		args, env, err := flagsOf(c, planned(w))
		if err != nil {
			return o, fmt.Errorf("%s: %w", at, err)
		}
		if o, err = u.o.Picker(without(args, "config-file", "config-text"), env.lookup); err != nil {
			return o, &InvalidError{fmt.Errorf("%s: %w", at, err)}
		}
	}
	o.PoolName, o.Namespace, o.Endpoints, o.Objects, o.Selector, o.TargetPorts = b.Name, b.Namespace,
		[]*core.Endpoint{}, "", nil, nil
	o.Address, o.HealthAddress, o.MetricsAddress = cluster.AnyPort, cluster.AnyPort, cluster.AnyPort
	o.Secure, o.CertPath = false, ""
	o.Origin, o.Hold.Recorder, o.Hold.Trace = u.origin, u.o.Recorder, u.o.Trace
	o.AllowExperimental, o.PodHeaders, o.ExplainHeaders, o.EmitScores, o.History, o.Log = true, true, true, true,
		remembered, u.log
	if o.Config, o.ConfigName, err = u.pickerConfig(s, b); err != nil {
		return o, err
	}
	o.ClientHeaders, o.Hosts = clientLimits(b), u.address(b.Namespace, w)
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

// pickerConfig returns a pool's EndpointPickerConfig and its source. A nil text means the default configuration.
func (u *Up) pickerConfig(s *gateway.Set, b *gateway.Backend) (text []byte, from string, err error) {
	text, from, note, err := s.PickerConfig(b)
	if err != nil {
		return nil, "", &InvalidError{err}
	}
	if note != "" {
		u.note(note)
	}
	return text, from, nil
}

// scraped returns the port at which a picker scrapes a workload's pods, if the picker's configuration names one, as
// document 003's scrapers do. It returns at most one port.
func (c *change) scraped(w *gateway.Workload) []int {
	for _, b := range c.program.Backends {
		if b.Pool == nil || b.Namespace != w.Namespace || len(b.Pool.Selector) == 0 ||
			!b.Pool.Selector.Matches(w.Pods) {
			continue
		}
		text, from, _, err := c.s.PickerConfig(b)
		if err != nil || text == nil {
			continue // the picker's start reports the mistake
		}
		o := epp.PickerOptions{Config: text, ConfigName: from, AllowExperimental: true, Log: discard}
		built, err := epp.BuildPicker(&o)
		if err != nil {
			continue // here, too
		}
		for _, x := range built.Scrapes() {
			if port := atoi(x.Source.Scrape().Port); port != 0 {
				return []int{port}
			}
		}
	}
	return nil
}

// startPicker starts a replica of a pool's picker.
func (u *Up) startPicker(s *gateway.Set, b *gateway.Backend, i int) (*poolPicker, error) {
	o, err := u.pickerOptions(s, b)
	if err != nil {
		return nil, err
	}
	server, err := epp.StartStandalone(o)
	if err != nil {
		return nil, &InvalidError{err}
	}
	name := fmt.Sprintf("%s-epp-%d", b.Name, i)
	w, _ := s.PickerOf(b)
	if w != nil {
		name = w.PodName(i)
	}
	return &poolPicker{name: name, workload: w, server: server, config: string(o.Config),
		line: pickerLine(s, b)}, nil
}

// reload applies the objects' current configuration to a picker.
func (x *poolPicker) reload(u *Up, s *gateway.Set, b *gateway.Backend) error {
	text, _, err := u.pickerConfig(s, b)
	if err != nil || string(text) == x.config {
		return err
	}
	if err := x.server.Reload(text); err != nil {
		return &InvalidError{err}
	}
	x.config = string(text)
	return nil
}

// endpointsOf returns a pool's endpoints: the ports of its pods that run here, and the external ones in the objects.
func (u *Up) endpointsOf(s *gateway.Set, p *objects.Pool, pods []*pod) objects.Selection {
	out := s.Select(p.Namespace, p.Name)
	var here []*core.Endpoint
	for _, x := range pods {
		if x.namespace != p.Namespace || len(p.Selector) == 0 || !p.Selector.Matches(x.workload.Pods) {
			continue
		}
		served := false
		for i, port := range p.Ports {
			at, ok := x.at[port]
			if !ok {
				continue
			}
			served = true
			host, number, err := net.SplitHostPort(at)
			if err != nil {
				continue
			}
			e := core.NewEndpoint(p.Namespace, core.RankName(x.name, i), host, number, p.Roles(x.workload.Pods))
			e.Rank = i
			here = append(here, e)
		}
		if !served {
			u.note(fmt.Sprintf("%s:%d: %s %s/%s: its pods listen on %s and not on port %v of InferencePool %s; they "+
				"are no endpoints of it",
				x.workload.File, x.workload.Line, x.workload.Kind, x.namespace, x.workload.Name, portsOf(x), p.Ports,
				p.Name))
		}
	}
	if len(here) > 0 && len(p.Targets) > 0 {
		out.Endpoints, out.Announced = nil, nil // a status written by an earlier controller does not count here
	}
	out.Endpoints = append(here, out.Endpoints...)
	return out
}

func portsOf(x *pod) string {
	numbers := slices.Sorted(maps.Keys(x.at))
	if len(numbers) == 0 {
		return "no port"
	}
	return strings.Trim(fmt.Sprint(numbers), "[]")
}

// serviceEndpoints returns the addresses behind a Service's port: the pods that run here, and the external ones in the
// objects.
func serviceEndpoints(s *gateway.Set, b *gateway.Backend, pods []*pod) []string {
	out := s.Sliced(b.Service, b.Port)
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Namespace == b.Namespace && p.Ready && p.IP != "" && b.Port.TargetNumber > 0 &&
			len(b.Service.Selector) > 0 && b.Service.Selector.Matches(p.Labels) {
			out = append(out, net.JoinHostPort(p.IP, strconv.Itoa(b.Port.TargetNumber)))
		}
	}
	for _, x := range pods {
		if x.namespace != b.Namespace || len(b.Service.Selector) == 0 || !b.Service.Selector.Matches(x.workload.Pods) {
			continue
		}
		number := b.Port.TargetNumber
		if b.Port.TargetName != "" {
			number, _ = x.workload.Port(b.Port.TargetName)
		}
		if at := x.place(number); at != "" {
			out = append(out, at)
		}
	}
	return out
}

func (x *poolPicker) stop(ctx context.Context) error { return x.server.Stop(ctx) }
