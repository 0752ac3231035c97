package stack

import (
	"cmp"
	"net"
	"strconv"
)

// Addresses are where the parts of a stack listen, for programs that look at it.
type Addresses struct {
	// Gateway is Envoy for clients, EnvoyAdmin its own pages.
	Gateway    string `json:"gateway"`
	EnvoyAdmin string `json:"envoyAdmin"`
	// Picker is the first endpoint picker, Pickers are all.
	Picker  PickerAddress   `json:"picker"`
	Pickers []PickerAddress `json:"pickers"`
	// Servers are the model servers.
	Servers []ServerAddress `json:"servers"`
	// KVManager is the first KV-Cache Manager's HTTP.
	KVManager string `json:"kvManager,omitempty"`
	// Targets are all metrics pages, in the form of Prometheus' file_sd_configs.
	Targets []Target `json:"targets"`
}

// PickerAddress is one endpoint picker; an external one has an ext_proc address only.
type PickerAddress struct {
	Name    string `json:"name"`
	Pool    string `json:"pool"`
	ExtProc string `json:"extProc"`
	Health  string `json:"health,omitempty"`
	Metrics string `json:"metrics,omitempty"`
}

// ServerAddress is one model server.
type ServerAddress struct {
	Name string `json:"name"`
	Pool string `json:"pool"`
	// Address is the server's own; Sidecar is the address of the sidecar before it, if there is one.
	Address string `json:"address"`
	Sidecar string `json:"sidecar,omitempty"`
	// Prefill says that it only prefills.
	Prefill bool `json:"prefill,omitempty"`
	// Absent says that it is not an endpoint: it has not joined, or has left.
	Absent bool `json:"absent,omitempty"`
}

// Target is one group of Prometheus' targets.
type Target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// Addresses returns where everything listens.
func (s *Stack) Addresses() *Addresses {
	a := &Addresses{Gateway: "http://" + s.Gateway.Addr, EnvoyAdmin: "http://" + s.Gateway.AdminAddr}
	scrape := func(job, pool, instance, address, path string) {
		labels := map[string]string{"job": job, "instance": instance, "__metrics_path__": path}
		if pool != "" {
			labels["inference_pool"] = pool
		}
		a.Targets = append(a.Targets, Target{[]string{address}, labels})
	}
	scrape("envoy", "", "envoy", s.Gateway.AdminAddr, "/stats/prometheus")
	for _, p := range s.Pools {
		for i, at := range p.ExtProc() {
			x := PickerAddress{Name: p.pool.Picker.Replicas[i].Name, Pool: p.pool.Name, ExtProc: at}
			if p.Pickers != nil {
				x.Health, x.Metrics = p.Pickers[i].Server().HealthAddr(), p.Pickers[i].Server().MetricsAddr()
				scrape("epp", x.Pool, x.Name, x.Metrics, "/metrics")
			}
			a.Pickers = append(a.Pickers, x)
		}
	}
	if len(a.Pickers) > 0 {
		a.Picker = a.Pickers[0]
	}
	for _, p := range s.Pools {
		for i, name := range p.Names {
			x := ServerAddress{Name: name, Pool: p.pool.Name, Address: p.Endpoints[i], Absent: p.isAbsent(i)}
			if p.Fleet != nil {
				x.Address, x.Prefill = p.Fleet.Addresses()[i], p.pool.Servers[i].Prefills()
				if car := p.Pods[i].Sidecar; car != nil {
					x.Sidecar = car.Addr()
				}
			}
			a.Servers = append(a.Servers, x)
			scrape("model-server", x.Pool, name, x.Address, "/metrics")
		}
		if p.kv != nil && p.kv.manager != nil {
			at := p.kv.manager.HTTPAddress()
			a.KVManager = cmp.Or(a.KVManager, "http://"+at)
			scrape("kv-manager", p.pool.Name, "kv-manager", at, "/metrics")
		}
	}
	return a
}

// fixed is the address for a port of 127.0.0.1, or the other address where the port is not given.
func fixed(port int, otherwise string) string {
	if port <= 0 {
		return otherwise
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
