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
	"github.com/windtunnel/windtunnel/live/serve"
)

// readSidecar reads the command line of the pod's routing sidecar. It leaves TLS inside a pod and between pods out,
// because no manifest describes that TLS to the gateway.
func (c *change) readSidecar(p *pod, x *gateway.Container) (start func() error, err error) {
	args, env, err := flagsOf(x, p.here())
	if err != nil {
		return nil, err
	}
	p.allows = poolName{namespace: p.PodNamespace}
	o, err := c.u.o.Sidecar(append(args, "--endpoints-file="+c.u.endpointsFile(p.allows)), env)
	if err != nil {
		return nil, err
	}
	if p.allows.name = o.PoolName; o.PoolName != "" {
		if o.Namespace != "default" { // the flag's default
			p.allows.namespace = o.Namespace
		}
		if s := c.to.Objects; o.Protect && s.Pool(p.allows.namespace, o.PoolName) == nil {
			c.u.note(fmt.Sprintf("%s: found no InferencePool %s/%s; expected the pool's name in INFERENCE_POOL_NAME: "+
				"the sidecar refuses every prefill server", p.Workload.Where(x), p.allows.namespace, o.PoolName))
		}
	}
	o.EndpointsFile = c.u.endpointsFile(p.allows)
	o.Log = c.u.LogOf(p.PodNamespace, p.PodName, x.Name)
	decoder := serve.PortOf(o.Decoder)
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
		return p.StartSidecar(serve.PortOf(o.Listen), o)
	}, nil
}

// poolName names the InferencePool whose pods a sidecar allows as prefill servers. Without a name, all pods of the
// namespace are allowed.
type poolName struct{ namespace, name string }

// endpointsFile returns the path of the file that lists these pods for sidecars, which do not use Kubernetes here.
func (u *Up) endpointsFile(n poolName) string {
	return filepath.Join(u.o.Dir, "endpoints-"+strings.TrimSuffix(n.namespace+"-"+n.name, "-")+".yaml")
}

// writeEndpoints writes the endpoint files of all sidecars.
func (c *change) writeEndpoints() error {
	pods := c.list()
	lists := map[poolName][]*picker.Endpoint{}
	for _, p := range pods {
		lists[poolName{namespace: p.PodNamespace}] = nil
		if p.allows != (poolName{}) {
			lists[p.allows] = nil
		}
	}
	for n := range lists {
		pool := c.to.Objects.Pool(n.namespace, n.name)
		for _, p := range pods {
			if p.Role != gateway.RoleServer || p.PodNamespace != n.namespace ||
				n.name != "" && (pool == nil || !pool.Selector.Matches(p.Workload.Pods)) {
				continue
			}
			for number, at := range p.At {
				name := fmt.Sprintf("%s-%d", p.PodName, number)
				lists[n] = append(lists[n], cluster.NewEndpoint(p.PodNamespace, name, at, p.Workload.Pods))
			}
		}
	}
	var errs []error
	for n, list := range lists {
		slices.SortFunc(list, func(a, b *picker.Endpoint) int { return strings.Compare(a.Name, b.Name) })
		errs = append(errs, cluster.WriteEndpoints(c.u.endpointsFile(n), list))
	}
	return errors.Join(errs...)
}
