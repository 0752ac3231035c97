package up

import (
	"strconv"
)

// Addresses are all listening addresses of a run, for programs.
type Addresses struct {
	EnvoyAdmin string          `json:"envoyAdmin"`
	Listeners  []ListenAddress `json:"listeners"`
	Pickers    []PickerAddress `json:"pickers"`
	Routers    []RouterAddress `json:"bodyRouters,omitempty"`
	Pods       []PodAddress    `json:"pods"`
	// Scaled are the workloads with an autoscaler.
	Scaled []ScaledWorkload `json:"scaled,omitempty"`
}

// ListenAddress is one port of a Gateway.
type ListenAddress struct {
	Gateway string `json:"gateway"` // namespace/name
	Port    int    `json:"port"`    // the port in the manifest
	URL     string `json:"url"`
}

// PickerAddress is a pool's endpoint picker, or one replica of it.
type PickerAddress struct {
	Pool    string `json:"pool"` // namespace/name
	Name    string `json:"name"` // its pod's name
	ExtProc string `json:"extProc"`
	Health  string `json:"health"`
	Metrics string `json:"metrics"`
}

// RouterAddress is a body-based router, or one replica of it.
type RouterAddress struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	ExtProc   string `json:"extProc"`
}

// PodAddress holds the listening addresses of a pod, by its ports' numbers.
type PodAddress struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Role      string            `json:"role"`
	Model     string            `json:"model,omitempty"`
	Ports     map[string]string `json:"ports"`
	// Sidecar is the one of the ports where the routing sidecar listens, if there is one.
	Sidecar string `json:"sidecar,omitempty"`
}

// Addresses returns all listening addresses.
func (u *Up) Addresses() *Addresses {
	u.applying.Lock()
	defer u.applying.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	a := &Addresses{EnvoyAdmin: "http://" + u.Envoy.AdminAddr}
	for _, g := range u.applied.Program.Gateways {
		for _, p := range g.Ports {
			scheme := "http"
			if p.Table == nil {
				scheme = "https"
			}
			a.Listeners = append(a.Listeners,
				ListenAddress{Gateway: g.Namespace + "/" + g.Name, Port: p.Number,
					URL: scheme + "://" + u.listen[portKey(g, p.Number)]})
		}
	}
	for _, p := range u.applied.Pickers {
		x := u.pickers[p.Key()].server
		a.Pickers = append(a.Pickers, PickerAddress{p.Backend.Namespace + "/" + p.Backend.Name, p.Name(), x.Addr(),
			x.HealthAddr(), x.MetricsAddr()})
	}
	for _, r := range u.applied.Routers {
		a.Routers = append(a.Routers,
			RouterAddress{r.Workload.PodName(r.Replica), r.Workload.Namespace, u.routers[r.Key()].Addr()})
	}
	for _, p := range sorted(u.pods) {
		ports := map[string]string{}
		for _, places := range []map[int]string{p.Beside, p.At} {
			for n, at := range places {
				ports[strconv.Itoa(n)] = at
			}
		}
		x := PodAddress{p.PodName, p.PodNamespace, string(p.Role), p.model, ports, ""}
		if p.Sidecar != nil {
			x.Sidecar = p.Sidecar.Addr()
		}
		a.Pods = append(a.Pods, x)
	}
	a.Scaled = u.scaledWorkloads()
	return a
}
