package up

import (
	"net"
	"net/url"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// services is what the names of Services stand for.
type services struct {
	s    *gateway.Set
	pods []*pod
}

// address is where host:port of a Service is listened on, "" where it names none, as
// pickers ask it when their plug-ins go there.
func (u *Up) address(namespace string) func(hostPort string) string {
	return func(hostPort string) string {
		if x := u.services.Load(); x != nil {
			if at := service(x.s, x.pods, namespace, hostPort); at != hostPort {
				return at
			}
		}
		return ""
	}
}

// service returns a URL or host:port with a Service's name resolved to the address of its first pod;
// one that names no Service stays as it is.
func service(s *gateway.Set, pods []*pod, namespace, to string) string {
	if list := podsOf(s, pods, namespace, to); len(list) > 0 {
		return list[0]
	}
	return to
}

// podsOf returns the addresses of the pods of the Service that a URL or host:port names; none
// where it names no Service.
func podsOf(s *gateway.Set, pods []*pod, namespace, to string) []string {
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
	return serviceEndpoints(s, &gateway.Backend{Namespace: namespace, Service: service, Port: p}, pods)
}
