package scenario

import (
	"net"
	"strconv"
	"strings"
)

// The ports of a pod, as in a cluster.
const (
	// PodPort is what clients, the picker and Envoy reach: the sidecar, or the
	// model server where there is none.
	PodPort = 8000
	// BehindPort is a model server's own behind a sidecar (document 003).
	BehindPort = 8001
	// SideChannelPort is where KV caches are asked for where nothing else is said.
	SideChannelPort = 5600
)

// ServerPort is the port of pod i's model server itself.
func (p *Pool) ServerPort(i int) int {
	if p.Sidecar != NoSidecar && !p.Prefills(i) {
		return BehindPort
	}
	return PodPort
}

// AlsoPort is a further port at which pod i's model server answers, 0 for none:
// in a pool with sidecars all do at BehindPort, where document 003's scrapers ask
// every worker.
func (p *Pool) AlsoPort(i int) int {
	if p.Sidecar != NoSidecar && p.ServerPort(i) != BehindPort {
		return BehindPort
	}
	return 0
}

// Names that picker configurations may use instead of addresses, which a run
// does not know before it begins.
const (
	// ManagerName is document 003's KV-Cache Manager.
	ManagerName = "kv-cache-manager:8080"
	// FrontendName is the Dynamo frontend that a picker asks.
	FrontendName = "dynamo-frontend:8000"
	// RenderName is any model server of the pool, for token-producer's vllm.url.
	RenderName = "model-server:8000"
)

// Services are addresses behind names.
type Services map[string]string

// Address is what is behind host:port, or "". A name may also be written as a
// cluster's DNS has it, with its namespace: kv-cache-manager.llm-d-system,
// kv-cache-manager.llm-d-system.svc, kv-cache-manager.llm-d-system.svc.cluster.local.
func (s Services) Address(at string) string {
	if to := s[at]; to != "" {
		return to
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return ""
	}
	name, rest, _ := strings.Cut(host, ".")
	if _, zone, _ := strings.Cut(rest, "."); zone != "" && zone != "svc" && zone != "svc.cluster.local" {
		return ""
	}
	return s[net.JoinHostPort(name, port)]
}

// Services are the addresses behind the names that are there in this pool: those
// of a KV-Cache Manager, of a Dynamo frontend and of a model server. Empty ones are not there.
func (p *Pool) Services(manager, frontend, server string) Services {
	m := Services{}
	if p.KVManager && p.ModelServer.KVEvents.Published() && manager != "" {
		m[ManagerName] = manager
	}
	if p.Dynamo.Given() && frontend != "" {
		m[FrontendName] = frontend
	}
	if server != "" {
		m[RenderName] = server
	}
	return m
}

// JoinPort is an address of a host's port.
func JoinPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
