package up

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// services resolves the names of Services.
type services struct {
	s       *gateway.Set
	pods    []*pod
	pickers map[string]*poolPicker // by their keys
}

// address returns a function that resolves host:port to a listening address. The host is a Service, or loopback for the
// picker's own pod, which is a replica of w. The function returns "" for any other host. The pickers' plug-ins use it
// to reach other servers. w is nil if the picker has no pod of its own.
func (u *Up) address(namespace string, w *gateway.Workload) func(hostPort string) string {
	return func(hostPort string) string {
		x := u.services.Load()
		if x == nil {
			return ""
		}
		host, port, _ := net.SplitHostPort(hostPort)
		if ip, err := netip.ParseAddr(host); w != nil && (host == "localhost" || err == nil && ip.IsLoopback()) {
			i := slices.IndexFunc(x.pods, func(p *pod) bool {
				return p.Workload.Key() == w.Key() && p.Place(atoi(port)) != ""
			})
			if i >= 0 {
				return x.pods[i].Place(atoi(port))
			}
		}
		if at := service(x.s, x.pods, namespace, hostPort); at != hostPort {
			return at
		}
		return ""
	}
}

// service resolves the Service's name in a URL or host:port to a pod's address. It returns a value without a Service's
// name unchanged.
func service(s *gateway.Set, pods []*pod, namespace, to string) string {
	b := backend(s, namespace, to)
	if b == nil {
		return to
	}
	list := serviceEndpoints(s, b, pods)
	if len(list) == 0 {
		return to
	}
	return list[0]
}

// backend returns the Service's port that a URL or host:port names, or nil if it names none.
func backend(s *gateway.Set, namespace, to string) *gateway.Backend {
	host := to
	if x, err := url.Parse(to); err == nil && x.Host != "" {
		host = x.Host
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return nil
	}
	parts := strings.Split(name, ".")
	if len(parts) > 1 {
		namespace = parts[1]
	}
	service := s.Service(namespace, parts[0])
	if service == nil {
		return nil
	}
	p, ok := service.Port(atoi(port))
	if !ok {
		return nil
	}
	return &gateway.Backend{Namespace: namespace, Service: service, Port: p}
}

// listeners returns the addresses at which KV events for an address arrive: those of a Service's pods and of its
// pickers. ok is false if the address names no Service's port.
func (x *services) listeners(namespace, to string) (list []string, ok bool) {
	b := backend(x.s, namespace, to)
	if b == nil {
		return nil, false
	}
	list = serviceEndpoints(x.s, b, x.pods)
	for _, key := range slices.Sorted(maps.Keys(x.pickers)) {
		p := x.pickers[key]
		w := p.Workload
		if w == nil || w.Namespace != b.Namespace || !b.Service.Selector.Matches(w.Pods) {
			continue
		}
		port := b.Port.TargetNumber
		if b.Port.TargetName != "" {
			port, _ = w.Port(b.Port.TargetName)
		}
		if at, found := strings.CutPrefix(p.server.Picking().EventsAt(strconv.Itoa(port)), "tcp://"); found {
			list = append(list, at)
		}
	}
	return list, true
}
