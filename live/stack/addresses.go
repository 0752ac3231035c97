package stack

import (
	"net"
	"strconv"
)

// Addresses are where the parts of a stack listen, for programs that look at it.
type Addresses struct {
	// Gateway is Envoy for clients, EnvoyAdmin its own pages.
	Gateway    string `json:"gateway"`
	EnvoyAdmin string `json:"envoyAdmin"`
	// Picker is the endpoint picker; somebody else's has an ext_proc address only.
	Picker struct {
		ExtProc string `json:"extProc"`
		Health  string `json:"health,omitempty"`
		Metrics string `json:"metrics,omitempty"`
	} `json:"picker"`
	// Servers are the model servers.
	Servers []ServerAddress `json:"servers"`
	// KVManager is the KV-Cache Manager's HTTP.
	KVManager string `json:"kvManager,omitempty"`
	// Targets are all metrics pages, in the form of Prometheus' file_sd_configs.
	Targets []Target `json:"targets"`
}

// ServerAddress is one model server.
type ServerAddress struct {
	Name string `json:"name"`
	// Address is the server itself; Sidecar is what stands before it, if anything does.
	Address string `json:"address"`
	Sidecar string `json:"sidecar,omitempty"`
	// Prefill says that it only prefills.
	Prefill bool `json:"prefill,omitempty"`
}

// Target is one group of Prometheus' targets.
type Target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// Addresses tells where everything listens.
func (s *Stack) Addresses() *Addresses {
	a := &Addresses{Gateway: "http://" + s.Gateway.Addr, EnvoyAdmin: "http://" + s.Gateway.AdminAddr}
	scrape := func(job, instance, address, path string) {
		a.Targets = append(a.Targets, Target{[]string{address}, map[string]string{"job": job, "instance": instance, "__metrics_path__": path}})
	}
	scrape("envoy", "envoy", s.Gateway.AdminAddr, "/stats/prometheus")
	a.Picker.ExtProc = s.ExtProc()
	if s.Picker != nil {
		a.Picker.Health, a.Picker.Metrics = s.Picker.HealthAddr(), s.Picker.MetricsAddr()
		scrape("epp", "epp", a.Picker.Metrics, "/metrics")
	}
	for i, name := range s.Names {
		x := ServerAddress{Name: name, Address: s.Endpoints[i]}
		if s.Fleet != nil {
			x.Address, x.Prefill = s.Fleet.Addresses()[i], s.pool.Prefills(i)
		}
		if i < len(s.Sidecars) {
			x.Sidecar = s.Sidecars[i].Addr()
		}
		a.Servers = append(a.Servers, x)
		scrape("model-server", name, x.Address, "/metrics")
	}
	if s.kv != nil && s.kv.manager != nil {
		a.KVManager = "http://" + s.kv.manager.HTTPAddress()
		scrape("kv-manager", "kv-manager", s.kv.manager.HTTPAddress(), "/metrics")
	}
	return a
}

// fixed is the address for a port that the scenario may fix: the first of several
// parts and the number of this one. Where it does not, it is otherwise.
func fixed(first, number int, otherwise string) string {
	if first == 0 {
		return otherwise
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(first+number))
}
