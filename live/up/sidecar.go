package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

// readSidecar parses the command line of the pod's routing sidecar. It returns nil if the pod has none. It leaves TLS
// inside a pod and between pods out, because no manifest describes that TLS to the gateway.
func (u *Up) readSidecar(p *pod) (*sidecar.Options, error) {
	c := p.Workload.With(gateway.RoleSidecar)
	if c == nil || u.o.Sidecar == nil {
		return nil, nil
	}
	at := p.Workload.Where(c)
	args, env, err := flagsOf(c, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	args = append(args, "--endpoints-file="+u.endpointsFile(p.Workload.Namespace))
	o, err := u.o.Sidecar(args, env.lookup)
	if err != nil {
		return nil, &InvalidError{fmt.Errorf("%s: %w", at, err)}
	}
	decoder, found := p.at[atoi(portOf(o.Decoder))]
	if !found {
		return nil, &InvalidError{fmt.Errorf("%s: the decode server's port is %s, and the pod's model server listens "+
			"on %s", at, portOf(o.Decoder), portsOf(p))}
	}
	if o.Serve.On || o.Prefiller.On || o.DecoderTLS.On {
		u.note(at + ": TLS of the sidecar is left out: inside the pool everything goes in the clear")
	}
	o.Serve.On, o.Prefiller.On, o.DecoderTLS.On = false, false, false
	o.Decoder, o.Namespace, o.PodName, o.Recorder, o.Log = decoder, p.Workload.Namespace, p.Name(), u.o.Recorder, u.log
	o.Ranks, o.Disagg.Trace = 1, u.o.Trace
	// A pod is ready only if all its containers are, so a pod with a dead engine is no endpoint.
	o.DecoderHealth, o.BlockBytes = true, cmp.Or(o.BlockBytes, p.blockBytes)
	return &o, nil
}

// startSidecar starts the pod's routing sidecar in front of its model server, with the sidecar's own command line.
func (u *Up) startSidecar(s *gateway.Set, p *pod) error {
	o, err := u.readSidecar(p)
	if err != nil || o == nil {
		return err
	}
	for i, to := range o.Prefillers {
		o.Prefillers[i] = service(s, sorted(u.starting), p.Workload.Namespace, to)
	}
	number := atoi(portOf(o.Listen))
	o.Listen = u.addresses.On(p.ip, number)
	x, err := sidecar.Start(*o)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Workload.Where(p.Workload.With(gateway.RoleSidecar)), err)
	}
	p.at[number], p.sidecar = x.Addr(), x.Addr()
	p.stops = append(p.stops, func(ctx context.Context) { _ = x.Stop(ctx) }) // no client uses it any more
	return nil
}

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// endpointsFile returns the path of the file that lists a namespace's pods for sidecars, which do not use Kubernetes
// here.
func (u *Up) endpointsFile(namespace string) string {
	return filepath.Join(u.o.Dir, "endpoints-"+namespace+".yaml")
}

// writeEndpoints writes the endpoint files.
func (u *Up) writeEndpoints(pods []*pod) error {
	byNamespace := map[string][]*picker.Endpoint{}
	for _, p := range pods {
		if p.Role != gateway.RoleServer {
			continue
		}
		for n, at := range p.at {
			e, err := cluster.NewEndpoint(p.Workload.Namespace, fmt.Sprintf("%s-%d", p.Name(), n), at, p.Workload.Pods)
			if err != nil {
				return err
			}
			byNamespace[p.Workload.Namespace] = append(byNamespace[p.Workload.Namespace], e)
		}
	}
	var errs []error
	for namespace, list := range byNamespace {
		slices.SortFunc(list, func(a, b *picker.Endpoint) int { return strings.Compare(a.Name, b.Name) })
		errs = append(errs, cluster.WriteEndpoints(u.endpointsFile(namespace), list))
	}
	return errors.Join(errs...)
}
