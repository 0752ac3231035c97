package up

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// services is what the names of Services stand for.
type services struct {
	s    *gateway.Set
	pods []*pod
}

// address is where host:port of a Service, or of the own pod of a workload's replica, is listened on, "" where it names
// neither. Plug-ins of pickers that ask elsewhere ask there. w is nil where the picker has no pod of its own.
func (u *Up) address(namespace string, w *gateway.Workload) func(hostPort string) string {
	return func(hostPort string) string {
		x := u.services.Load()
		if x == nil {
			return ""
		}
		host, port, _ := net.SplitHostPort(hostPort)
		if ip, err := netip.ParseAddr(host); w != nil && (host == "localhost" || err == nil && ip.IsLoopback()) {
			i := slices.IndexFunc(x.pods, func(p *pod) bool {
				return workloadKey(p.workload) == workloadKey(w) && p.place(atoi(port)) != ""
			})
			if i >= 0 {
				return x.pods[i].place(atoi(port))
			}
		}
		if at := service(x.s, x.pods, namespace, hostPort); at != hostPort {
			return at
		}
		return ""
	}
}

// service is a URL or host:port with a Service's name resolved to a pod's address;
// one that names no Service stays as it is.
func service(s *gateway.Set, pods []*pod, namespace, to string) string {
	host := to
	if x, err := url.Parse(to); err == nil && x.Host != "" {
		host = x.Host
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return to
	}
	parts := strings.Split(name, ".")
	if len(parts) > 1 {
		namespace = parts[1]
	}
	service := s.Service(namespace, parts[0])
	if service == nil {
		return to
	}
	p, ok := service.Port(atoi(port))
	if !ok {
		return to
	}
	list := serviceEndpoints(s, &gateway.Backend{Namespace: namespace, Service: service, Port: p}, pods)
	if len(list) == 0 {
		return to
	}
	return list[0]
}
