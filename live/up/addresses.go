package up

import (
	"maps"
	"slices"
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
	Pool      string `json:"pool"` // namespace/name
	Name      string `json:"name"` // its pod's name
	Namespace string `json:"namespace"`
	// Container is the name of the pod's container, and Labels are the pod's labels.
	Container string            `json:"container"`
	Labels    map[string]string `json:"labels,omitempty"`
	ExtProc   string            `json:"extProc"`
	Health    string            `json:"health"`
	Metrics   string            `json:"metrics"`
}

// RouterAddress is a body-based router, or one replica of it.
type RouterAddress struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	ExtProc   string `json:"extProc"`
}

// PodAddress holds the listening addresses of a pod, by its ports' numbers.
type PodAddress struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Workload is the name of its Deployment or other controller, and Labels are the pod's labels.
	Workload string            `json:"workload"`
	Labels   map[string]string `json:"labels,omitempty"`
	IP       string            `json:"ip"`
	Role     string            `json:"role"`
	Model    string            `json:"model,omitempty"`
	Ports    map[string]string `json:"ports"`
	// Metrics is the address of its metrics page, "" without one.
	Metrics string `json:"metrics,omitempty"`
	// OOMKilled means that its model server does not fit into its memory.
	OOMKilled bool `json:"oomKilled,omitempty"`
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
		namespace, name, container := p.Place()
		at := PickerAddress{Pool: p.Backend.Namespace + "/" + p.Backend.Name, Name: name, Namespace: namespace,
			Container: container, ExtProc: x.Addr(), Health: x.HealthAddr(), Metrics: x.MetricsAddr()}
		if p.Workload != nil {
			at.Labels = p.Workload.Pods
		}
		a.Pickers = append(a.Pickers, at)
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
		x := PodAddress{Name: p.PodName, Namespace: p.PodNamespace, Workload: p.Workload.Name, Labels: p.Workload.Pods,
			IP: p.IP.String(), Role: string(p.Role), Model: p.model, Ports: ports, OOMKilled: p.killed}
		if p.Sidecar != nil {
			x.Sidecar = p.Sidecar.Addr()
		}
		switch {
		case p.Manager != nil:
			x.Metrics = p.Manager.HTTPAddress()
		case p.model != "":
			for _, n := range slices.Sorted(maps.Keys(p.At)) {
				if at := p.At[n]; at != x.Sidecar && x.Metrics == "" {
					x.Metrics = at
				}
			}
		}
		a.Pods = append(a.Pods, x)
	}
	a.Scaled = u.scaledWorkloads()
	return a
}
