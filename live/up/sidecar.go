package up

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/cluster"
)

// readSidecar reads the command line of the pod's routing sidecar. It leaves TLS inside a pod and between pods out,
// because no manifest describes that TLS to the gateway.
func (c *change) readSidecar(p *pod, x *gateway.Container) (start func() error, err error) {
	args, env, err := flagsOf(x, p.here())
	if err != nil {
		return nil, err
	}
	o, err := c.u.o.Sidecar(append(args, "--endpoints-file="+c.u.endpointsFile(p.PodNamespace)), env)
	if err != nil {
		return nil, err
	}
	decoder := cluster.PortOf(o.Decoder)
	if p.At[decoder] == "" {
		return nil, fmt.Errorf("the decode server's port is %d, and the pod's model server listens on %s", decoder,
			portsOf(p))
	}
	if o.Serve.On || o.Prefiller.On || o.DecoderTLS.On {
		c.u.note(p.Workload.Where(x) + ": TLS of the sidecar is left out: inside the pool everything goes in the clear")
	}
	o.Serve.On, o.Prefiller.On, o.DecoderTLS.On = false, false, false
	o.Ranks, o.BlockBytes = 1, cmp.Or(o.BlockBytes, p.blockBytes)
	return func() error {
		o.Decoder = p.At[decoder]
		for i, to := range o.Prefillers {
			o.Prefillers[i] = service(c.to.Objects, c.list(), p.PodNamespace, to)
		}
		return p.StartSidecar(cluster.PortOf(o.Listen), o)
	}, nil
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
		for n, at := range p.At {
			e, err := cluster.NewEndpoint(p.PodNamespace, fmt.Sprintf("%s-%d", p.PodName, n), at, p.Workload.Pods)
			if err != nil {
				return err
			}
			byNamespace[p.PodNamespace] = append(byNamespace[p.PodNamespace], e)
		}
	}
	var errs []error
	for namespace, list := range byNamespace {
		slices.SortFunc(list, func(a, b *picker.Endpoint) int { return strings.Compare(a.Name, b.Name) })
		errs = append(errs, cluster.WriteEndpoints(u.endpointsFile(namespace), list))
	}
	return errors.Join(errs...)
}
