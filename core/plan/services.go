package plan

import (
	"net/url"
	"strconv"
	"strings"
)

// The ports of a pod, as in a cluster.
const (
	// PodPort describes what clients, the picker and Envoy reach: the sidecar, or the model server where there is none.
	PodPort = 8000
	// BehindPort is a model server's own behind a sidecar (document 003).
	BehindPort = 8001
	// SideChannelPort is where KV caches are asked for where nothing else is said.
	SideChannelPort = 5600
)

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

// Services returns the addresses behind the names that the pool has: those of a KV-Cache Manager, of a Dynamo
// frontend and of a model server. Empty addresses are left out.
func (p *Pool) Services(manager, frontend, server string) Services {
	m := Services{}
	if p.Events != nil && p.Events.Manager != nil && manager != "" {
		m[ManagerName] = manager
	}
	if p.Frontend != nil && frontend != "" {
		m[FrontendName] = frontend
	}
	if server != "" {
		m[RenderName] = server
	}
	return m
}

// Address returns the address behind host:port, or "". A name may also be written as in DNS of a cluster, with its
// namespace: kv-cache-manager.llm-d-system, kv-cache-manager.llm-d-system.svc,
// kv-cache-manager.llm-d-system.svc.cluster.local.
func (s Services) Address(at string) string {
	if to := s[at]; to != "" {
		return to
	}
	u := url.URL{Host: at}
	if u.Port() == "" {
		return ""
	}
	name, rest, _ := strings.Cut(u.Hostname(), ".")
	if _, zone, _ := strings.Cut(rest, "."); zone != "" && zone != "svc" && zone != "svc.cluster.local" {
		return ""
	}
	return s[name+":"+u.Port()]
}

// JoinPort is an address of a host's port.
func JoinPort(host string, port int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}
